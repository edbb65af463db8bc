//! The figures of a device as reports show them; the same in every command that has them.

use serde::Serialize;
use vramwise_analyze::figures::Fragmentation;
use vramwise_analyze::peak::{Evidence, Peaks};
use vramwise_types::Human;

/// A figure in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bytes {
    pub(crate) bytes: u64,
    /// Whether it is exact; else a lower bound.
    pub(crate) exact: bool,
}

impl Bytes {
    /// For people: `4.76 GiB`, or `≥ 4.76 GiB`.
    pub(crate) fn human(self) -> String {
        let sign = if self.exact { "" } else { "≥ " };
        format!("{sign}{}", Human(self.bytes))
    }
}

/// The four peaks.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PeakBytes {
    pub(crate) reserved: Bytes,
    pub(crate) active: Bytes,
    pub(crate) allocated: Bytes,
    pub(crate) requested: Bytes,
}

impl From<&Peaks> for PeakBytes {
    fn from(peaks: &Peaks) -> Self {
        let bytes =
            |peak: &vramwise_analyze::peak::Peak| Bytes { bytes: peak.bytes, exact: peak.exact };
        Self {
            reserved: bytes(&peaks.reserved),
            active: bytes(&peaks.active),
            allocated: bytes(&peaks.allocated),
            requested: bytes(&peaks.requested),
        }
    }
}

/// Reserved memory that nothing used when most was reserved.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FragmentationReport {
    pub(crate) reserved_bytes: u64,
    pub(crate) unused_bytes: u64,
    /// Percent of the reserved bytes.
    pub(crate) percent: f64,
    /// Whether it is exact; else an upper bound.
    pub(crate) exact: bool,
}

impl From<Fragmentation> for FragmentationReport {
    fn from(fragmentation: Fragmentation) -> Self {
        Self {
            reserved_bytes: fragmentation.reserved,
            unused_bytes: fragmentation.unused(),
            percent: (fragmentation.share() * 1e4).round() / 100.0,
            exact: fragmentation.exact,
        }
    }
}

impl FragmentationReport {
    /// For people: `12.3%`.
    pub(crate) fn human(self) -> String {
        let sign = if self.exact { "" } else { "≤ " };
        format!("{sign}{:.1}%", self.percent)
    }
}

/// `replay`, `history` or `state`.
pub(crate) fn evidence_name(evidence: &Evidence) -> &'static str {
    match evidence {
        Evidence::Replay => "replay",
        Evidence::History(_) => "history",
        Evidence::State => "state",
    }
}

/// A change in bytes for people: `+1.50 GiB`.
pub(crate) fn signed(delta: i128) -> String {
    let bytes = u64::try_from(delta.unsigned_abs()).unwrap_or(u64::MAX);
    match delta {
        0 => "0".to_owned(),
        1.. => format!("+{}", Human(bytes)),
        _ => format!("-{}", Human(bytes)),
    }
}

/// A change in percent of what was before; `None` where that was nothing.
pub(crate) fn percent_change(before: u64, after: u64) -> Option<f64> {
    (before > 0).then(|| {
        let change = (i128::from(after) - i128::from(before)) as f64 / before as f64;
        (change * 1e4).round() / 100.0
    })
}

/// The same for people: `+3.2%`.
pub(crate) fn percent_signed(before: u64, after: u64) -> String {
    percent_change(before, after).map_or(String::new(), |p| format!("{p:+.1}%"))
}

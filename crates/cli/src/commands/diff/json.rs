//! The report of `vramwise diff --json`; its keys are a promise to scripts. A is before, B after.

use serde::Serialize;
use vramwise_analyze::diff::{DeviceDiff, Row, Side};
use vramwise_analyze::peak::Evidence;

use super::Input;
use crate::figures::{FragmentationReport, PeakBytes, evidence_name};
use crate::stacks::SampledStacks;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    pub(super) a: FileReport,
    pub(super) b: FileReport,
    /// How the holders are grouped.
    pub(super) by: &'static str,
    pub(super) devices: Vec<DeviceReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FileReport {
    pub(super) file: String,
    pub(super) torch_version: String,
    /// The settings string; `null` where the file does not say.
    pub(super) settings: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DeviceReport {
    pub(super) device: u32,
    /// `null` where this file has no such device.
    pub(super) a: Option<SideReport>,
    pub(super) b: Option<SideReport>,
    /// Holders at the two peaks of allocated memory: how many there are together.
    pub(super) groups_total: usize,
    pub(super) groups_new: usize,
    pub(super) groups_vanished: usize,
    /// How many hold as many bytes as before.
    pub(super) groups_unchanged: usize,
    /// Those that hold more or less, the largest change first; the first `--top` of them.
    pub(super) groups: Vec<RowReport>,
    /// Change in bytes of those that `groups` leaves out.
    pub(super) rest_delta_bytes: i64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SideReport {
    pub(super) events: usize,
    /// `replay`, `history` or `state`.
    pub(super) evidence: &'static str,
    /// Why there is no replay.
    pub(super) evidence_reason: Option<String>,
    pub(super) peaks: Option<PeakBytes>,
    pub(super) fragmentation: FragmentationReport,
    /// Allocated bytes at the moment of `groups`.
    pub(super) allocated_bytes: u64,
    pub(super) event: Option<usize>,
    pub(super) rounding_bytes: u64,
    pub(super) oom: usize,
    pub(super) has_stacks: bool,
    /// Where only some steps were recorded with stacks, which; `null` where all are alike.
    pub(super) sampled_stacks: Option<SampledStacks>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RowReport {
    pub(super) name: String,
    /// Its name in A, where the line moved.
    pub(super) moved_from: Option<String>,
    /// `new`, `vanished`, `more` or `less`.
    pub(super) change: &'static str,
    pub(super) a_bytes: u64,
    pub(super) b_bytes: u64,
    pub(super) delta_bytes: i64,
    pub(super) a_blocks: u64,
    pub(super) b_blocks: u64,
}

impl Report {
    pub(super) fn new(
        [a, b]: [&Input; 2],
        devices: &[DeviceDiff],
        by: &'static str,
        top: usize,
    ) -> Self {
        let file = |input: &Input| FileReport {
            file: input.file.clone(),
            torch_version: input.options.version.to_string(),
            settings: input.snapshot.settings.as_ref().map(|s| s.conf.clone()),
        };
        let devices = devices.iter().map(|d| device(d, top)).collect();
        Self { schema: 1, a: file(a), b: file(b), by, devices }
    }
}

fn device(diff: &DeviceDiff, top: usize) -> DeviceReport {
    let count = |f: fn(&Row) -> bool| diff.rows.iter().filter(|r| f(r)).count();
    let changed: Vec<&Row> = diff.rows.iter().filter(|r| r.delta() != 0).collect();
    let rest: i128 = changed.iter().skip(top).map(|r| r.delta()).sum();
    DeviceReport {
        device: diff.device,
        a: diff.a.as_ref().map(side),
        b: diff.b.as_ref().map(side),
        groups_total: diff.rows.len(),
        groups_new: count(|r| r.a.is_none()),
        groups_vanished: count(|r| r.b.is_none()),
        groups_unchanged: diff.rows.len() - changed.len(),
        groups: changed.iter().take(top).map(|r| row(r)).collect(),
        rest_delta_bytes: narrow(rest),
    }
}

fn side(side: &Side) -> SideReport {
    let device = &side.inspection;
    let memory = &device.memory;
    SideReport {
        events: device.events,
        evidence: evidence_name(&device.evidence),
        evidence_reason: match &device.evidence {
            Evidence::History(why) => Some(why.clone()),
            _ => None,
        },
        peaks: device.peaks.as_ref().map(PeakBytes::from),
        fragmentation: side.fragmentation.into(),
        allocated_bytes: memory.allocated.bytes,
        event: memory.when.event,
        rounding_bytes: memory.allocated.bytes.saturating_sub(memory.requested),
        oom: device.ooms.len(),
        has_stacks: device.has_stacks,
        sampled_stacks: device.sampled.as_ref().map(SampledStacks::new),
    }
}

fn row(row: &Row) -> RowReport {
    let (a, b) = (row.a.as_ref(), row.b.as_ref());
    RowReport {
        name: row.label().to_owned(),
        moved_from: row.moved_from().map(str::to_owned),
        change: match (a, b) {
            (None, _) => "new",
            (_, None) => "vanished",
            _ if row.delta() > 0 => "more",
            _ => "less",
        },
        a_bytes: a.map_or(0, |g| g.bytes),
        b_bytes: b.map_or(0, |g| g.bytes),
        delta_bytes: narrow(row.delta()),
        a_blocks: a.map_or(0, |g| g.blocks),
        b_blocks: b.map_or(0, |g| g.blocks),
    }
}

fn narrow(delta: i128) -> i64 {
    i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX })
}

//! What changed between two recordings: settings, peaks, holders, fragmentation.
//!
//! Both are inspected on their own and compared device by device, each at its own peak of allocated
//! memory. Holders are matched by name ([`matching`]), so that moved lines and other addresses do not
//! count as changes. Any grouping of [`crate::peak::By`] can be compared.

mod matching;

use vramwise_trace::Snapshot;

use crate::figures::{Fragmentation, fragmentation};
use crate::peak::{self, At, DeviceInspection, Group, Options, Refusal};

/// Two devices of one number; at least one is there.
#[derive(Clone, Debug)]
pub struct DeviceDiff {
    /// Their number.
    pub device: u32,
    /// Before.
    pub a: Option<Side>,
    /// After.
    pub b: Option<Side>,
    /// Holders of the two peaks, the largest change first, then by name.
    pub rows: Vec<Row>,
}

/// One of the two.
#[derive(Clone, Debug)]
pub struct Side {
    /// The device at its peak of allocated memory (at the end, without a history).
    pub inspection: DeviceInspection,
    /// Unused memory at the peak of reserved memory.
    pub fragmentation: Fragmentation,
}

/// A holder in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it held before.
    pub a: Option<Group>,
    /// What it holds after.
    pub b: Option<Group>,
}

impl Row {
    /// Its name now, or the one that it had.
    pub fn label(&self) -> &str {
        self.b.as_ref().or(self.a.as_ref()).map_or("", |g| g.label.as_str())
    }

    /// Its name before, where that was another one: a line that moved.
    pub fn moved_from(&self) -> Option<&str> {
        let (a, b) = (self.a.as_ref()?, self.b.as_ref()?);
        (a.label != b.label).then_some(a.label.as_str())
    }

    /// Bytes after less bytes before.
    pub fn delta(&self) -> i128 {
        let bytes = |g: &Option<Group>| g.as_ref().map_or(0, |g| i128::from(g.bytes));
        bytes(&self.b) - bytes(&self.a)
    }
}

/// Compares two snapshots; each is inspected under options of its own.
///
/// # Errors
/// The first file (`false`) or the second (`true`) that cannot be inspected, and why.
pub fn diff(
    a: (&Snapshot, &Options),
    b: (&Snapshot, &Options),
) -> Result<Vec<DeviceDiff>, (bool, Refusal)> {
    let before = sides(a.0, a.1).map_err(|why| (false, why))?;
    let after = sides(b.0, b.1).map_err(|why| (true, why))?;
    let number = |side: &Side| side.inspection.device;
    let mut devices: Vec<u32> = before.iter().chain(&after).map(number).collect();
    devices.sort_unstable();
    devices.dedup();
    let find = |sides: &[Side], device| sides.iter().find(|s| number(s) == device).cloned();
    let one = |device| {
        let (a, b) = (find(&before, device), find(&after, device));
        let groups = |side: &Option<Side>| {
            side.as_ref().map_or(Vec::new(), |s| s.inspection.memory.groups.clone())
        };
        let mut rows: Vec<Row> = matching::pairs(groups(&a), groups(&b))
            .into_iter()
            .map(|(a, b)| Row { a, b })
            .collect();
        rows.sort_by(|x, y| {
            let by_size = y.delta().unsigned_abs().cmp(&x.delta().unsigned_abs());
            by_size.then_with(|| x.label().cmp(y.label()))
        });
        DeviceDiff { device, a, b, rows }
    };
    Ok(devices.into_iter().map(one).collect())
}

fn sides(snapshot: &Snapshot, options: &Options) -> Result<Vec<Side>, Refusal> {
    let inspection = peak::inspect(snapshot, &Options { at: At::Peak, ..options.clone() })?;
    let side = |device: DeviceInspection| {
        let fragmentation = fragmentation(snapshot, options, &device)?;
        Ok(Side { inspection: device, fragmentation })
    };
    inspection.devices.into_iter().map(side).collect()
}

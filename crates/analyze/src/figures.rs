//! The few figures of a recording that budgets and comparisons are about.

use vramwise_trace::Snapshot;

use crate::peak::{self, At, DeviceInspection, Evidence, Options, Peaks, Refusal};

/// One device in figures.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its number.
    pub device: u32,
    /// Entries of its history.
    pub events: usize,
    /// What the figures rest on.
    pub evidence: Evidence,
    /// The peaks; `None` without a history.
    pub peaks: Option<Peaks>,
    /// Reserved memory that nothing used, at the peak of reserved memory.
    pub fragmentation: Fragmentation,
    /// Requests that found no memory.
    pub ooms: usize,
}

/// Reserved bytes and how many of them were in active blocks, at the moment when most was reserved
/// (without a history: at the end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmentation {
    /// Bytes held by the allocator.
    pub reserved: u64,
    /// Bytes in blocks that the program held or that waited for other streams.
    pub active: u64,
    /// Whether `active` is exact; else it is a lower bound, and the share an upper bound.
    pub exact: bool,
}

impl Fragmentation {
    /// Reserved bytes that no block used.
    pub fn unused(&self) -> u64 {
        self.reserved.saturating_sub(self.active)
    }

    /// Their share of what was reserved, 0 to 1; 0 where nothing was.
    pub fn share(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.unused() as f64 / self.reserved as f64 }
    }
}

/// The figures of every device that has segments or a history.
///
/// # Errors
/// As [`peak::inspect`].
pub fn figures(snapshot: &Snapshot, options: &Options) -> Result<Vec<Figures>, Refusal> {
    let inspection = peak::inspect(snapshot, &Options { at: At::End, ..options.clone() })?;
    let of = |device: DeviceInspection| {
        Ok(Figures {
            device: device.device,
            events: device.events,
            fragmentation: fragmentation(snapshot, options, &device)?,
            evidence: device.evidence,
            peaks: device.peaks,
            ooms: device.ooms.len(),
        })
    };
    inspection.devices.into_iter().map(of).collect()
}

/// The fragmentation of a device that was inspected.
///
/// # Errors
/// As [`peak::inspect`].
pub fn fragmentation(
    snapshot: &Snapshot,
    options: &Options,
    device: &DeviceInspection,
) -> Result<Fragmentation, Refusal> {
    let event = device.peaks.as_ref().and_then(|peaks| peaks.reserved.when.event);
    let at = event.map_or(At::End, At::Event);
    let options = Options { at, device: Some(device.device), ..options.clone() };
    let inspection = peak::inspect(snapshot, &options)?;
    let memory = inspection.devices.first().map(|d| &d.memory);
    Ok(memory.map_or(Fragmentation { reserved: 0, active: 0, exact: true }, |memory| {
        let active = memory.allocated.bytes.saturating_add(memory.pending.bytes);
        Fragmentation { reserved: memory.reserved, active, exact: memory.exact }
    }))
}

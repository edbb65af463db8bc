//! The report of `vramwise rehearse --json`; its keys are a promise to scripts.

use serde::Serialize;
use vramwise_rehearse::reports::{OutOfMemory, Place};
use vramwise_rehearse::{DeviceUse, Rehearsal, Verdict};

use super::Run;
use super::draws::Draws;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    pub(super) gpu: String,
    pub(super) gpu_id: String,
    pub(super) gpu_measured: bool,
    pub(super) gpus: u32,
    pub(super) command: Vec<String>,
    pub(super) conf: Option<String>,
    pub(super) torch: String,
    pub(super) cuda: String,
    pub(super) cudnn: Option<u64>,
    pub(super) exit_status: u8,
    pub(super) timed_out: bool,
    /// Whether it was ended by an interrupt or another signal to this program.
    pub(super) interrupted: bool,
    /// Null where the program failed by itself.
    pub(super) fits: Option<bool>,
    pub(super) total_bytes: u64,
    pub(super) peak_allocated_bytes: u64,
    pub(super) peak_allocated_bytes_range: Option<(u64, u64)>,
    pub(super) peak_reserved_bytes: u64,
    pub(super) peak_reserved_bytes_range: Option<(u64, u64)>,
    pub(super) peak_device_bytes: u64,
    pub(super) context_bytes: u64,
    pub(super) headroom_bytes: u64,
    pub(super) per_device: Vec<Device>,
    pub(super) holders: Vec<HolderReport>,
    pub(super) oom: Option<OomReport>,
    pub(super) steps: Option<u64>,
    pub(super) processes: usize,
    /// Whether nothing is uncertain.
    pub(super) exact: bool,
    pub(super) uncertain: Vec<String>,
    pub(super) values: Option<ValuesReport>,
    /// What other assumptions about values that cannot be known would make of it; null where nothing had to be
    /// assumed, or one draw was asked for.
    pub(super) draws: Option<Draws>,
    pub(super) convolutions: ConvolutionsReport,
    pub(super) notes: Vec<String>,
    /// Library calls that do nothing on the emulated device.
    unknown_calls: Vec<String>,
    pub(super) snapshot: Option<String>,
    /// Where snapshot, report and logs are kept; null where nothing is.
    pub(super) directory: Option<String>,
}

/// What a program takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) fits: Option<bool>,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) device: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Device {
    device: usize,
    total_bytes: u64,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    peak_device_bytes: u64,
    context_bytes: u64,
    headroom_bytes: u64,
}

/// A line of the program and what it held at the peak.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct HolderReport {
    pub(super) place: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// The first request that found no memory.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OomReport {
    pub(super) device: u32,
    /// Bytes asked of the device.
    pub(super) tried_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) reserved_bytes: u64,
    /// How many such requests there were.
    pub(super) count: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ValuesReport {
    known: u64,
    assumed: u64,
    unknown: u64,
    unknown_floats: u64,
    places: Vec<PlaceReport>,
}

/// A line that reads numbers which are not sure.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlaceReport {
    /// `assumed` or `unknown`.
    how: String,
    /// `integer` or `float`.
    kind: String,
    /// PyTorch's operation.
    operation: String,
    place: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ConvolutionsReport {
    measured: u64,
    unmeasured: u64,
    unmeasured_signatures: Vec<String>,
}

impl Report {
    pub(super) fn new(rehearsal: &Rehearsal, run: &Run, top: usize) -> Self {
        let outcome = &run.outcome;
        let worst = outcome.worst();
        let index = outcome.devices.iter().position(|device| *device == worst).unwrap_or(0);
        let evidence = run.evidence.iter().find(|evidence| evidence.device as usize == index);
        let ranges = evidence.and_then(|evidence| evidence.ranges);
        let holders = evidence.map_or(&[][..], |evidence| &evidence.holders);
        let main = outcome.processes.first();
        let ended = outcome.verdict != Verdict::Unknown;
        let text = |path: &std::path::Path| path.display().to_string();
        Self {
            schema: 1,
            gpu: rehearsal.profile.card.name.clone(),
            gpu_id: rehearsal.profile.card.id.clone(),
            gpu_measured: rehearsal.profile.card.measured,
            gpus: rehearsal.gpus,
            command: rehearsal.command.clone(),
            conf: rehearsal.conf.clone(),
            torch: outcome.torch.version.clone(),
            cuda: outcome.torch.cuda.clone(),
            cudnn: main.and_then(|process| process.cudnn),
            exit_status: outcome.ended.status,
            timed_out: outcome.ended.timed_out,
            interrupted: outcome.ended.interrupted(),
            fits: ended.then_some(outcome.verdict == Verdict::Fits),
            total_bytes: worst.total,
            peak_allocated_bytes: worst.allocated,
            peak_allocated_bytes_range: ranges.map(|ranges| ranges.allocated),
            peak_reserved_bytes: worst.reserved,
            peak_reserved_bytes_range: ranges.map(|ranges| ranges.reserved),
            peak_device_bytes: worst.device,
            context_bytes: worst.context,
            headroom_bytes: worst.headroom(),
            per_device: outcome.devices.iter().enumerate().map(device).collect(),
            holders: holders
                .iter()
                .take(top)
                .map(|holder| HolderReport {
                    place: holder.place.clone(),
                    bytes: holder.bytes,
                    blocks: holder.blocks,
                })
                .collect(),
            oom: outcome.oom.map(OomReport::from),
            steps: main.and_then(|process| process.steps),
            processes: outcome.processes.len(),
            exact: run.uncertain.is_empty() && ended && !outcome.processes.is_empty(),
            uncertain: run.uncertain.clone(),
            values: outcome.reads.as_ref().map(|reads| ValuesReport {
                known: reads.known,
                assumed: reads.assumed + reads.finite,
                unknown: reads.unknown,
                unknown_floats: reads.unknown_floats,
                places: reads.places.iter().map(PlaceReport::from).collect(),
            }),
            draws: run.draws.clone(),
            convolutions: convolutions(run),
            notes: outcome.notes.clone(),
            unknown_calls: outcome.unknown_calls(),
            snapshot: outcome.snapshot().map(|path| text(path)),
            directory: Some(text(&outcome.directory)),
        }
    }

    /// The figures that are held against others: of several draws the highest.
    pub(super) fn figures(&self) -> Figures {
        let own = Figures {
            fits: self.fits,
            allocated: self.peak_allocated_bytes,
            reserved: self.peak_reserved_bytes,
            device: self.peak_device_bytes,
        };
        self.draws.as_ref().map_or(own, |draws| Figures {
            fits: own.fits.map(|fits| fits && draws.fits()),
            allocated: draws.highest(|run| run.peak_allocated_bytes),
            reserved: draws.highest(|run| run.peak_reserved_bytes),
            device: draws.highest(|run| run.peak_device_bytes),
        })
    }

    /// The line that holds most at the peak.
    pub(super) fn holder(&self) -> Option<&HolderReport> {
        self.holders.first()
    }
}

impl From<OutOfMemory> for OomReport {
    fn from(oom: OutOfMemory) -> Self {
        Self {
            device: oom.device,
            tried_bytes: oom.tried_bytes,
            total_bytes: oom.total_bytes,
            free_bytes: oom.free_bytes,
            allocated_bytes: oom.allocated_bytes,
            reserved_bytes: oom.reserved_bytes,
            count: oom.count,
        }
    }
}

impl From<&Place> for PlaceReport {
    fn from(place: &Place) -> Self {
        Self {
            how: place.how.clone(),
            kind: place.kind.clone(),
            operation: place.operation.clone(),
            place: place.place.clone(),
        }
    }
}

fn device((device, memory): (usize, &DeviceUse)) -> Device {
    Device {
        device,
        total_bytes: memory.total,
        peak_allocated_bytes: memory.allocated,
        peak_reserved_bytes: memory.reserved,
        peak_device_bytes: memory.device,
        context_bytes: memory.context,
        headroom_bytes: memory.headroom(),
    }
}

fn convolutions(run: &Run) -> ConvolutionsReport {
    let all = || run.outcome.reports.iter().map(|report| &report.convolutions);
    ConvolutionsReport {
        measured: all().map(|c| c.measured).sum(),
        unmeasured: all().map(|c| c.unmeasured).sum(),
        unmeasured_signatures: all().flat_map(|c| c.unmeasured_signatures.clone()).collect(),
    }
}

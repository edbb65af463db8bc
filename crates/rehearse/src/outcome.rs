//! What a rehearsal came to: the program's end, its memory, and how sure that is.

use std::path::PathBuf;
use std::sync::Arc;

use crate::child::Ended;
use crate::doubts::doubt;
use crate::machine::Strict;
use crate::passes::{Rehearsal, Values};
use crate::python::Torch;
use crate::reports::{self, DeviceReport, OutOfMemory, Place, TorchReport, ValuesReport, read_all};
use crate::room::Room;
use crate::session::Session;

/// Whether the program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran to its end.
    Fits,
    /// It ran out of memory.
    DoesNotFit,
    /// It ended otherwise, and what it had taken until then is all that is known; or it ran to its end, and its processes
    /// had more than the card has if their peaks came at the same time.
    Unknown,
}

/// Memory of one device, over all processes of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Bytes of the card.
    pub total: u64,
    /// PyTorch's peak of allocated bytes.
    pub allocated: u64,
    /// PyTorch's peak of reserved bytes.
    pub reserved: u64,
    /// The peak of all that was in use on the device, contexts included.
    pub device: u64,
    /// Bytes of the contexts.
    pub context: u64,
}

impl DeviceUse {
    /// Bytes that were never used.
    pub fn headroom(&self) -> u64 {
        self.total.saturating_sub(self.device)
    }
}

/// What the program read from the device in the first pass, by how sure it is.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Integers and truth values that are known.
    pub known: u64,
    /// Those that follow from indices drawn at random.
    pub assumed: u64,
    /// Numbers that follow from gradients taken to be finite.
    pub finite: u64,
    /// Those that are not known.
    pub unknown: u64,
    /// Floating-point numbers that are not known, such as losses.
    pub unknown_floats: u64,
    /// The lines that read what is not known.
    pub places: Vec<Place>,
}

/// All that is known at the end.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The session's directory. One among the temporary files goes with the outcome, unless [`Outcome::keep`] says
    /// otherwise.
    pub directory: PathBuf,
    pub(crate) room: Arc<Room>,
    /// The PyTorch that ran.
    pub torch: Torch,
    /// The first pass, where there was one.
    pub learned: Option<Ended>,
    /// The pass that counts.
    pub ended: Ended,
    /// Whether it fits.
    pub verdict: Verdict,
    /// Memory, by device.
    pub devices: Vec<DeviceUse>,
    /// PyTorch's reports, by process; the one that took most first.
    pub processes: Vec<TorchReport>,
    /// The emulated device's reports, by process.
    pub reports: Vec<DeviceReport>,
    /// The first request without memory.
    pub oom: Option<OutOfMemory>,
    /// What was read in the first pass.
    pub reads: Option<Reads>,
    /// Why figures may be off, whatever the history says.
    pub uncertain: Vec<String>,
    /// Other things to know.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Calls of the device's libraries that have no meaning there, such as settings of cuBLAS.
    pub fn unknown_calls(&self) -> Vec<String> {
        let calls = self.reports.iter().flat_map(|report| report.unknown_calls.clone());
        let sorted: std::collections::BTreeSet<String> = calls.collect();
        sorted.into_iter().collect()
    }

    /// The snapshot of the process that took most.
    pub fn snapshot(&self) -> Option<&PathBuf> {
        self.processes.first().and_then(|process| process.snapshot.as_ref())
    }

    /// Somebody is told of the session's directory: it stays.
    pub fn keep(&self) {
        self.room.keep();
    }

    /// Whether there is something in the session's directory that is worth a look: a recording, or what a program that
    /// failed said.
    pub fn has_something(&self) -> bool {
        let failed = self.learned.is_some_and(|learned| learned.status != 0);
        self.snapshot().is_some() || self.ended.status != 0 || failed
    }

    /// Removes the session's directory, whoever named it.
    pub fn discard(&self) {
        // What cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    /// The device with the highest peak.
    pub fn worst(&self) -> DeviceUse {
        self.devices.iter().copied().max_by_key(|device| device.device).unwrap_or_default()
    }
}

/// Reads what the passes left.
pub(crate) fn read(
    rehearsal: &Rehearsal,
    session: &Session,
    torch: Torch,
    learned: Option<Ended>,
    ended: Ended,
    strict: Option<Strict>,
) -> Outcome {
    let directory = &session.directory;
    let mut processes = reports::torch_reports(directory);
    processes.sort_by_key(|process| std::cmp::Reverse(peak(process)));
    let mut reports: Vec<DeviceReport> =
        read_all(directory, "device.").into_iter().map(|(_, report)| report).collect();
    reports.sort_by_key(|report| report.pid);
    let oom = processes.iter().find_map(|process| process.oom);
    let devices = devices(rehearsal, &processes, &reports);
    let crowded = devices.iter().any(|device| device.device > device.total);
    let verdict = match (ended.status, oom) {
        _ if ended.interrupted() => Verdict::Unknown,
        (0, _) if crowded => Verdict::Unknown,
        (0, _) => Verdict::Fits,
        (_, Some(_)) if !ended.timed_out => Verdict::DoesNotFit,
        _ => Verdict::Unknown,
    };
    let reads = reads(session, &rehearsal.values);
    let mut outcome = Outcome {
        directory: directory.clone(),
        room: Arc::clone(&session.room),
        torch,
        learned,
        ended,
        verdict,
        devices,
        processes,
        reports,
        oom,
        reads,
        uncertain: Vec::new(),
        notes: Vec::new(),
    };
    doubt(rehearsal, session, strict, &mut outcome);
    outcome
}

/// The highest peak of reserved bytes of a process on any device.
pub(crate) fn peak(report: &TorchReport) -> u64 {
    let peaks = (0..report.devices.len()).map(|n| report.counter(n, "reserved_bytes.all.peak"));
    peaks.max().unwrap_or(0)
}

/// Sums the processes' memory by device.
fn devices(
    rehearsal: &Rehearsal,
    processes: &[TorchReport],
    reports: &[DeviceReport],
) -> Vec<DeviceUse> {
    let count = usize::try_from(rehearsal.gpus).unwrap_or(1);
    (0..count)
        .map(|n| {
            let mut device = DeviceUse { total: rehearsal.total_bytes(), ..DeviceUse::default() };
            for process in processes {
                device.allocated += process.counter(n, "allocated_bytes.all.peak");
                device.reserved += process.counter(n, "reserved_bytes.all.peak");
            }
            for memory in reports.iter().filter_map(|report| report.devices.get(n)) {
                device.device += memory.peak_bytes;
                device.context += memory.context_bytes;
            }
            device.device = device.device.max(device.reserved);
            device
        })
        .collect()
}

fn reads(session: &Session, values: &Values) -> Option<Reads> {
    let place = match values {
        Values::TwoPasses => session.path("pass1"),
        Values::OnePass => session.directory.clone(),
        Values::Off | Values::File(_) => return None,
    };
    let mut reads = Reads::default();
    for (_, report) in read_all::<ValuesReport>(&place, "values.") {
        for read in &report.reads {
            match (read.how.as_str(), read.kind.as_str()) {
                ("finite", _) => reads.finite += read.count,
                ("unknown", "float") => reads.unknown_floats += read.count,
                ("unknown", _) => reads.unknown += read.count,
                ("assumed", _) => reads.assumed += read.count,
                _ => reads.known += read.count,
            }
        }
        reads.places.extend(report.places);
    }
    Some(reads)
}

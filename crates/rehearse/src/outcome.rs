//! What a rehearsal came to: the program's end, its memory, and how sure that is.

use std::path::PathBuf;
use std::sync::Arc;

use crate::child::Ended;
use crate::elf;
use crate::machine::Strict;
use crate::passes::{Rehearsal, Values};
use crate::python::Torch;
use crate::reports::{self, DeviceReport, OutOfMemory, Place, TorchReport, ValuesReport, read_all};
use crate::room::Room;
use crate::session::{Session, entries};

/// Whether the program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran to its end.
    Fits,
    /// It ran out of memory.
    DoesNotFit,
    /// It ended otherwise; what it had taken until then is all that is known.
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
    let verdict = match (ended.status, oom) {
        _ if ended.interrupted() => Verdict::Unknown,
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
fn peak(report: &TorchReport) -> u64 {
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

/// Says what the figures do not rest on a measurement or a computation for.
fn doubt(rehearsal: &Rehearsal, session: &Session, strict: Option<Strict>, outcome: &mut Outcome) {
    let mut uncertain = Vec::new();
    let mut notes = Vec::new();
    let card = &rehearsal.profile.card;
    if !card.measured {
        uncertain.push(format!(
            "the profile of {} comes from public specifications: the context is an estimate, and \
             libraries may choose other kernels than its figures make them",
            card.name
        ));
    }
    let sum = |of: fn(&DeviceReport) -> u64| outcome.reports.iter().map(of).sum::<u64>();
    let unmeasured = sum(|report| report.convolutions.unmeasured);
    if unmeasured > 0 {
        let all = unmeasured + sum(|report| report.convolutions.measured);
        uncertain.push(format!(
            "the workspaces of {unmeasured} of {all} cuDNN plans were not measured on this card: \
             reserved memory may be off by some per cent"
        ));
    }
    if let Some(reads) = &outcome.reads {
        let at = |how: &str, kind: &str| {
            let place = reads.places.iter().find(|p| p.how == how && p.kind == kind);
            place.map_or(String::new(), |p| format!(", first at {} ({})", p.place, p.operation))
        };
        if reads.unknown > 0 {
            uncertain.push(format!(
                "the program read {} integers or truth values that cannot be known without a GPU{}; \
                 they were 0",
                reads.unknown,
                at("unknown", "integer")
            ));
        }
        if reads.finite > 0 {
            let place = reads.places.iter().find(|p| p.how == "finite");
            let place = place.map_or(String::new(), |p| format!(", first at {}", p.place));
            let infinite = rehearsal.assume.draw(0, 1).infinite;
            let skipped = match infinite {
                0 => "no step and does not lower its scale (--assume infinite=N: its first N)"
                    .to_owned(),
                steps => format!("its first {steps} steps and none after that"),
            };
            uncertain.push(format!(
                "numbers were taken to be finite where the program looks for infinities and NaN{place}; a \
                 gradient scaler was taken to skip {skipped}"
            ));
        }
        if reads.assumed > 0 {
            let (number, count) = rehearsal.draw;
            uncertain.push(format!(
                "{} values that the program read follow from indices and masks that were assumed ({}){}",
                reads.assumed,
                rehearsal.assume.draw(number, count),
                at("assumed", "integer")
            ));
        }
        if reads.unknown_floats > 0 {
            notes.push(format!(
                "{} floating-point numbers that the program read (losses, norms, checkpoints) are not real{}; if \
                 it decides anything by them, it may decide otherwise on a GPU",
                reads.unknown_floats,
                at("unknown", "float")
            ));
        }
    }
    let ranks = rehearsal.rank.filter(|(world_size, _)| *world_size > 1);
    if ranks.is_some() || sum(|report| report.communicators) > 0 {
        let simulated = ranks
            .map_or(String::new(), |(world_size, _)| format!("{world_size} ranks are simulated: "));
        uncertain.push(format!(
            "{simulated}what NCCL itself takes on the device, beside PyTorch's memory, is not counted"
        ));
    }
    let (unknown, mismatches) = (sum(|r| r.values.unknown), sum(|r| r.values.mismatches));
    let large = sum(|report| report.values.large);
    if large > 0 {
        notes.push(format!(
            "{large} copies of more than 64 KiB from the device to the host (checkpoints, outputs) gave zeros"
        ));
    }
    if mismatches > 0 {
        uncertain.push(format!(
            "{mismatches} reads from the device had another size than in the first pass: values after \
             the first of these may be wrong"
        ));
    }
    if unknown > 0 && rehearsal.values != Values::Off && strict.is_none() {
        uncertain.push(format!("{unknown} reads from the device were not in the first pass"));
    }
    let unbacked = outcome.reports.iter().any(|report| report.backed == Some(false));
    let addresses_only = strict.is_some() || unbacked;
    if rehearsal.values == Values::Off || addresses_only {
        let read = if addresses_only {
            "as if they were 0"
        } else {
            "as if they were 0, but for what it had just put there itself"
        };
        uncertain.push(format!(
            "values were not computed: whatever the program decides by values on the device is decided {read}"
        ));
    }
    if let Values::File(file) = &rehearsal.values {
        let (answered, measured) = (sum(|r| r.values.answered), sum(|r| r.values.measured));
        if measured < answered {
            uncertain.push(format!(
                "{} of {answered} values that the program read come from {}, where nothing says that a GPU gave them",
                answered - measured,
                file.display()
            ));
        } else if answered > 0 {
            notes.push(format!(
                "{answered} values that the program read are those that a GPU gave, from {}",
                file.display()
            ));
        }
    }
    if rehearsal.values == Values::OnePass {
        uncertain.push("one pass: what computes the values holds memory of its own".to_owned());
    }
    notes.extend(strict.map(Strict::advice));
    if let Some(learned) = outcome.learned
        && learned.status != outcome.ended.status
    {
        uncertain.push(format!(
            "the first pass ended with status {}, see pass1.log: values after that are not known",
            learned.status
        ));
    }
    let holding = outcome.processes.iter().filter(|process| peak(process) > 0).count();
    if holding > 1 {
        uncertain.push(format!(
            "{holding} processes used the device: each was given the whole card, and the figures are sums of \
             their peaks, which need not come at the same time"
        ));
    }
    if session.has_counted_logs() {
        uncertain.push(
            "several processes that nothing tells apart read values: one may have got the answers of another"
                .to_owned(),
        );
    }
    uncertain.extend(own_runtimes(&outcome.reports));
    if outcome.processes.is_empty() && !outcome.ended.interrupted() {
        notes.push(
            "no process reported PyTorch's counters: the program did not use CUDA, ended without \
             clean-up, or its Python ignores PYTHONPATH (-I, -E)"
                .to_owned(),
        );
    }
    if outcome.ended.status == 0
        && let Some(oom) = outcome.oom
    {
        notes.push(format!(
            "the program ran out of memory {} and went on by itself",
            if oom.count == 1 { "once".to_owned() } else { format!("{} times", oom.count) }
        ));
    }
    for (name, path) in entries(&session.directory) {
        if name.starts_with("bootstrap.") {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let last = text.trim().lines().last().unwrap_or("").to_owned();
            notes.push(format!("the bootstrap failed in part ({name}): {last}"));
        }
    }
    notes.extend(outcome.reports.iter().flat_map(|report| report.notes.clone()));
    notes.extend(outcome.processes.iter().flat_map(|process| process.notes.clone()));
    notes.dedup();
    outcome.uncertain = uncertain;
    outcome.notes = notes;
}

/// Objects with a CUDA runtime of their own, which the emulated device is not.
fn own_runtimes(reports: &[DeviceReport]) -> Vec<String> {
    let objects = reports.iter().flat_map(|report| &report.objects);
    let objects: std::collections::BTreeSet<&PathBuf> = objects.collect();
    let found = objects.into_iter().filter(|path| elf::has_own_runtime(path) == Some(true));
    let said = |path: &PathBuf| {
        format!(
            "{} has a CUDA runtime of its own linked in, which does not work without NVIDIA's driver: what it does \
             on the device fails, and takes no memory here; build it with the shared runtime (nvcc --cudart \
             shared, CMake's CUDA::cudart)",
            path.display()
        )
    };
    found.map(said).collect()
}

//! How sure the figures of a rehearsal are, in words.

use std::path::{Path, PathBuf};

use crate::elf;
use crate::machine::Strict;
use crate::outcome::{Outcome, Reads, peak};
use crate::passes::{Rehearsal, Values};
use crate::reports::DeviceReport;
use crate::session::{Session, entries};

/// Says what the figures do not rest on a measurement or a computation for.
pub(crate) fn doubt(
    rehearsal: &Rehearsal,
    session: &Session,
    strict: Option<Strict>,
    outcome: &mut Outcome,
) {
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
        of_reads(rehearsal, reads, &mut uncertain, &mut notes);
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
    let answers = match &rehearsal.values {
        Values::File(file) => file.display().to_string(),
        _ => "the first pass".to_owned(),
    };
    if mismatches > 0 {
        uncertain.push(format!(
            "{mismatches} reads from the device had another size than in {answers}: values after the first of \
             these may be wrong"
        ));
    }
    if unknown > 0 && rehearsal.values != Values::Off && strict.is_none() {
        uncertain.push(format!("{unknown} reads from the device were not in {answers}"));
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
        let (breaks, unread) = (sum(|r| r.values.breaks), sum(|r| r.values.unread));
        uncertain.extend(of_another(file, breaks, unread, ended_by_itself(rehearsal, outcome)));
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
    let contexts =
        outcome.reports.iter().filter(|report| report.devices.iter().any(|d| d.peak_bytes > 0));
    let holding = holding.max(contexts.count());
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
    uncertain.extend(unanswered(&outcome.unknown_calls()));
    if outcome.processes.is_empty() && !outcome.ended.interrupted() {
        let failed = outcome.ended.status != 0 && outcome.reports.is_empty();
        notes.push(if failed {
            format!(
                "no process reported PyTorch's counters: the program ended with status {} before it used CUDA, or without \
                 clean-up; its own message says more",
                outcome.ended.status
            )
        } else {
            "no process reported PyTorch's counters: the program did not use CUDA, ended without \
             clean-up, or its Python ignores PYTHONPATH (-I, -E)"
                .to_owned()
        });
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

/// Whether the program came to its own end.
fn ended_by_itself(rehearsal: &Rehearsal, outcome: &Outcome) -> bool {
    rehearsal.steps.is_none() && outcome.ended.status == 0
}

/// Signs that a log of values is that of another program, or of another run.
fn of_another(file: &Path, breaks: u64, unread: u64, ended: bool) -> Vec<String> {
    let mut said = Vec::new();
    let file = file.display();
    if breaks > 0 {
        said.push(format!(
            "the lines of {file} do not follow one another: some are missing or were moved, and the values behind \
             them may be wrong"
        ));
    }
    // A program that is ended after some steps has not asked for the rest yet.
    if unread > 0 && ended {
        said.push(format!(
            "the program asked for less than {file} has ({unread} left over): it may be the log of another \
             program, or of another run"
        ));
    }
    said
}

/// What the first pass said of how well the values are known that the program read.
fn of_reads(
    rehearsal: &Rehearsal,
    reads: &Reads,
    uncertain: &mut Vec<String>,
    notes: &mut Vec<String>,
) {
    let at = |how: &str, kind: &str| {
        let place = reads.places.iter().find(|p| p.how == how && p.kind == kind);
        place.map_or(String::new(), |p| format!(", first at {} ({})", p.place, p.operation))
    };
    if reads.unknown > 0 {
        uncertain.push(format!(
            "the program read {} that cannot be known without a GPU{}; they came from zeros",
            match reads.unknown {
                1 => "1 integer or truth value".to_owned(),
                n => format!("{n} integers or truth values"),
            },
            at("unknown", "integer")
        ));
    }
    if reads.finite > 0 {
        let place = reads.places.iter().find(|p| p.how == "finite");
        let place = place.map_or(String::new(), |p| format!(", first at {}", p.place));
        let infinite = rehearsal.assume.draw(0, 1).infinite;
        let skipped = match infinite {
            0 => {
                "no step and does not lower its scale (--assume infinite=N: its first N)".to_owned()
            }
            steps => format!("its first {steps} steps and none after that"),
        };
        uncertain.push(format!(
            "numbers were taken to be finite where the program looks for infinities and NaN{place}; a \
             gradient scaler, where there is one, was taken to skip {skipped}"
        ));
    }
    if reads.assumed > 0 {
        let (number, count) = rehearsal.draw;
        uncertain.push(format!(
            "{} from indices, masks or random numbers that were assumed ({}){}",
            that_it_read(reads.assumed, "value", ["follows", "follow"]),
            rehearsal.assume.draw(number, count),
            at("assumed", "integer")
        ));
    }
    if reads.unknown_floats > 0 {
        notes.push(format!(
            "{} not real{} (losses, norms, checkpoints); if the program decides anything by such, it may decide otherwise \
             on a GPU",
            that_it_read(reads.unknown_floats, "floating-point number", ["is", "are"]),
            at("unknown", "float")
        ));
    }
}

/// Such as `2 values that the program read follow`.
fn that_it_read(count: u64, noun: &str, verbs: [&str; 2]) -> String {
    match count {
        1 => format!("1 {noun} that the program read {}", verbs[0]),
        n => format!("{n} {noun}s that the program read {}", verbs[1]),
    }
}

/// Libraries that were asked for the size of a workspace and could not answer as a card's do.
fn unanswered(calls: &[String]) -> Option<String> {
    let sizes = ["bufferSize", "BufferSize", "MakePlan", "Estimate", "GetSize", "WorkspaceSize"];
    let asked: Vec<&str> = calls
        .iter()
        .map(String::as_str)
        .filter(|call| sizes.iter().any(|size| call.contains(size)))
        .collect();
    let first = asked.first()?;
    let more = match asked.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!(
        "what these libraries need for their work is not known without a GPU ({first}{more}): it is an estimate, or nothing"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_does_not_go_with_the_program_is_a_doubt() {
        let said = |breaks, unread, ended| {
            of_another(Path::new("v.jsonl"), breaks, unread, ended).join("; ")
        };
        assert_eq!(said(0, 0, true), "");
        assert!(said(0, 7, true).contains("v.jsonl has (7 left over)"));
        assert_eq!(said(0, 7, false), "", "it was ended before");
        assert!(said(2, 0, false).contains("v.jsonl do not follow"));
    }

    #[test]
    fn workspaces_that_nobody_knows_are_a_doubt() {
        let calls =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(unanswered(&calls(&["cuStreamGetPriority"])), None);
        let said = unanswered(&calls(&["cufftXtMakePlanMany", "x", "cusolverDnXpotrf_bufferSize"]));
        assert!(said.unwrap().contains("(cufftXtMakePlanMany and 1 more)"));
    }
}

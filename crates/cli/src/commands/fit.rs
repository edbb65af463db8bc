//! `vramwise fit --vary NAME=LOW..HIGH -- COMMAND`.

mod report;

use std::io::IsTerminal as _;

use vramwise_rehearse::assume::{DRAWS, EXTREMES};
use vramwise_rehearse::largest::{self, Found, Trial};
use vramwise_rehearse::{Outcome, Rehearsal, Streams, Verdict};

use crate::Status;
use crate::commands::devices;
use crate::commands::rehearse::failure;
use crate::commands::rehearse::surroundings::Surroundings;
use crate::context::Context;
use crate::failure::{Failure, Kind};
use crate::text::grouped;

const EXAMPLES: &str = "\
Examples:
  vramwise fit --gpu rtx4090 --vary batch=1..512 -- python train.py --batch {batch}
      The largest batch that fits on that card: tried, and the next one tried not to fit.
  vramwise fit --gpu rtx3090,a100,h200 --vary seq=128..8192 --steps 2 -- python train.py --seq {seq}
      For several cards, two optimizer steps each time.
  vramwise fit --gpu t4 --conf '' --conf expandable_segments:True --vary batch=1..64 \\
      -- python train.py --batch {batch}
      Under several allocator settings; '' are the defaults.

Each trial is a rehearsal (see vramwise rehearse --help). Whatever is smaller than a value that fits is
supposed to fit. A trial in which the program runs out of memory, even if it goes on by itself, does not fit.
Where values had to be assumed (see --assume), a trial is made again under other assumptions: it
fits if it does under each, and its peak is the highest.

Exit status: 0 a value was found everywhere, 1 somewhere not even the lowest fits, 2 wrong usage or a
program that fails for another reason.";

/// Find the largest batch, sequence or other number with which a program fits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The cards, separated by commas: names of `vramwise devices`, or paths of profiles.
    #[arg(long, value_name = "PROFILE", default_value = "h200", value_delimiter = ',')]
    gpu: Vec<String>,
    /// What to vary and between which numbers; {NAME} in the command is replaced.
    #[arg(long, value_name = "NAME=LOW..HIGH", value_parser = vary)]
    vary: Vary,
    /// Allocator settings; several may be given, each is tried.
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,
    #[command(flatten)]
    surroundings: Surroundings,
    /// The program and its arguments, with {NAME} where the number goes.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vary {
    name: String,
    lowest: u64,
    highest: u64,
}

fn vary(text: &str) -> Result<Vary, String> {
    let parsed = text.split_once('=').and_then(|(name, range)| {
        let (lowest, highest) = range.split_once("..")?;
        let number = |text: &str| text.trim().trim_start_matches('=').replace('_', "").parse().ok();
        let (lowest, highest) = (number(lowest)?, number(highest)?);
        let name = name.trim().to_owned();
        (!name.is_empty() && lowest <= highest).then_some(Vary { name, lowest, highest })
    });
    parsed.ok_or_else(|| "write a name and a range, such as batch=1..512".to_owned())
}

impl Vary {
    /// The command with a number put in.
    fn put(&self, command: &[String], value: u64) -> Vec<String> {
        let place = format!("{{{}}}", self.name);
        command.iter().map(|word| word.replace(&place, &value.to_string())).collect()
    }
}

/// One card under one setting.
struct Row {
    rehearsal: Rehearsal,
    found: Found,
    /// The trial of the largest value that fits.
    best: Option<Seen>,
}

/// What is kept of a trial's outcome.
struct Seen {
    allocated: u64,
    reserved: u64,
    device: u64,
    /// The lowest and the highest such peak, where it was tried under several assumptions.
    drawn: Option<(u64, u64)>,
    total: u64,
    uncertain: Vec<String>,
}

/// Searches and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let place = format!("{{{}}}", args.vary.name);
    if !args.command.iter().any(|word| word.contains(&place)) {
        return Err(Failure::new(format!("{place} is nowhere in the command"))
            .hint(format!("write it where the number goes, such as --batch {place}")));
    }
    let confs: Vec<Option<String>> = match args.conf.as_slice() {
        [] => vec![None],
        confs => confs.iter().cloned().map(Some).collect(),
    };
    let mut rows = Vec::new();
    for gpu in &args.gpu {
        let profile = devices::profile(gpu)?;
        for conf in &confs {
            let mut rehearsal = Rehearsal::new(args.command.clone(), profile.clone());
            args.surroundings.apply(&mut rehearsal)?;
            let table = || devices::table_beside(gpu);
            rehearsal.workspaces = rehearsal.workspaces.or_else(table);
            rehearsal.conf.clone_from(conf);
            rehearsal.streams = Streams::Hidden;
            rows.push(search(rehearsal, &args.vary, context)?);
        }
    }
    let report = report::Report::new(&args.vary, &args.command, &rows);
    context.answer(&report, || report.render(context))?;
    let found = rows.iter().all(|row| row.found.largest.is_some());
    Ok(if found { Status::Fine } else { Status::Finding })
}

fn search(rehearsal: Rehearsal, vary: &Vary, context: &Context) -> Result<Row, Failure> {
    let mut best = None;
    let capacity = rehearsal.total_bytes();
    let found = largest::search(vary.lowest, vary.highest, capacity, |value| {
        let mut trial = rehearsal.clone();
        trial.command = vary.put(&rehearsal.command, value);
        let (fits, seen) = attempt(&trial)?;
        let peak = seen.device;
        say(context, &rehearsal, &format!("{} {value}", vary.name), fits, peak);
        if fits {
            best = Some(seen);
        }
        Ok::<_, Failure>(Trial { value, fits, peak })
    })?;
    Ok(Row { rehearsal, found, best })
}

/// Runs the program, under several assumptions where values cannot be known. Whether it fits under each, and what was
/// seen where it took most.
fn attempt(trial: &Rehearsal) -> Result<(bool, Seen), Failure> {
    let (mut fits, first) = once(trial, 0)?;
    let assumed = first.reads.as_ref().is_some_and(|reads| reads.assumed > 0);
    let mut peaks = vec![first.worst().device];
    let mut highest = first;
    for number in 1..if assumed && fits { DRAWS } else { 1 } {
        if number == EXTREMES && peaks.iter().all(|peak| *peak == peaks[0]) {
            break;
        }
        let (fit, outcome) = once(trial, number)?;
        if outcome.verdict == Verdict::Unknown {
            continue; // what was assumed makes it fail otherwise
        }
        peaks.push(outcome.worst().device);
        if !fit || outcome.worst().device > highest.worst().device {
            highest = outcome;
        }
        fits = fit;
        if !fits {
            break;
        }
    }
    let worst = highest.worst();
    let low = peaks.iter().copied().min().unwrap_or(worst.device);
    let drawn = (peaks.len() > 1).then_some((low, worst.device.max(low)));
    let mut uncertain = highest.uncertain.clone();
    uncertain.extend(drawn.map(|(low, high)| {
        format!(
            "the peak is the highest of {} draws of such values: {} to {} bytes on the device",
            peaks.len(),
            grouped(low),
            grouped(high)
        )
    }));
    let (allocated, reserved) = (worst.allocated, worst.reserved);
    let (device, total) = (worst.device, worst.total);
    Ok((fits, Seen { allocated, reserved, device, drawn, total, uncertain }))
}

/// One run, whose directory is gone then. That it fails for another reason than memory is an error in the first draw.
fn once(trial: &Rehearsal, number: u32) -> Result<(bool, Outcome), Failure> {
    let mut drawn = trial.clone();
    drawn.draw = (number, DRAWS);
    let outcome = drawn.run().map_err(|error| failure(&error))?;
    let checked = check(&outcome, &drawn.command);
    outcome.discard();
    if number == 0 || outcome.ended.interrupted() {
        checked?;
    }
    Ok((outcome.verdict == Verdict::Fits && outcome.oom.is_none(), outcome))
}

/// A program that fails for another reason than memory says nothing about memory.
fn check(outcome: &Outcome, command: &[String]) -> Result<(), Failure> {
    if outcome.ended.interrupted() {
        return Err(Failure::new("the search was interrupted").kind(Kind::Stopped));
    }
    if outcome.verdict != Verdict::Unknown {
        return Ok(());
    }
    if outcome.ended.status == 0 {
        let worst = outcome.worst();
        return Err(Failure::new(
            "the processes of the program may take more together than the card has",
        )
        .at(command.join(" "))
        .hint(format!(
            "the sum of their peaks is {} bytes of {}: have the command run one of them",
            grouped(worst.device),
            grouped(worst.total)
        )));
    }
    let log = std::fs::read_to_string(outcome.directory.join("pass2.log")).unwrap_or_default();
    let last: Vec<&str> = log.trim_end().lines().rev().take(3).collect();
    let said: Vec<&str> = last.into_iter().rev().collect();
    let how = if outcome.ended.timed_out {
        "was ended at its time limit".to_owned()
    } else {
        format!("ended with status {}", outcome.ended.status)
    };
    Err(Failure::new(format!("the program {how}, and not for want of memory"))
        .at(command.join(" "))
        .hint(format!("it said: {}", said.join(" / "))))
}

/// One line a trial, where somebody is looking.
fn say(context: &Context, rehearsal: &Rehearsal, what: &str, fits: bool, peak: u64) {
    if context.global.verbose > 0 || std::io::stderr().is_terminal() {
        let peak = vramwise_types::Human(peak);
        let how = if fits { "fits" } else { "does not fit" };
        context.say_trial(&format!("{}: {what} {how} ({peak})", rehearsal.profile.card.id));
    }
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<report::Report>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_varied_has_a_name_and_a_range() {
        let batch = Vary { name: "batch".to_owned(), lowest: 1, highest: 512 };
        assert_eq!(vary("batch=1..512"), Ok(batch.clone()));
        assert_eq!(vary("batch=1..=512"), Ok(batch.clone()));
        for wrong in ["batch", "=1..2", "batch=2..1", "batch=1-2", "batch=a..b"] {
            assert!(vary(wrong).is_err(), "{wrong}");
        }
        let command = ["train.py".to_owned(), "--batch={batch}".to_owned(), "{seq}".to_owned()];
        assert_eq!(batch.put(&command, 7), ["train.py", "--batch=7", "{seq}"]);
    }
}

//! `vramwise rehearse -- COMMAND`.

mod compare;
mod draws;
mod json;
pub(crate) mod surroundings;
mod text;

use std::path::PathBuf;

use vramwise_rehearse::evidence::{self, Evidence};
use vramwise_rehearse::{Outcome, Rehearsal, RehearsalError, Streams, Verdict};

use self::surroundings::Surroundings;
use crate::Status;
use crate::commands::devices;
use crate::context::Context;
use crate::failure::{Failure, Kind};
use crate::text::grouped;

const EXAMPLES: &str = "\
Examples:
  vramwise rehearse --gpu rtx4090 -- python train.py --batch 32
      Will the script, as it is, fit on that card? No GPU is needed, but PyTorch's CUDA build is.
  vramwise rehearse --gpu h200 --steps 3 -- python train.py
      The same, ended cleanly after three optimizer steps.
  vramwise rehearse --memory 24GiB --conf expandable_segments:True -- python train.py
      With less memory, and under other allocator settings.
  vramwise rehearse --world-size 64 --rank 0 --gpu h100 -- python train_fsdp.py
      As one of 64 ranks, in one process.
  vramwise rehearse --assume topk=skewed,nms=0.05..0.3 --draws 8 -- python train_moe.py
      With what is known of values that a GPU would compute; the peaks as a range over eight draws.
  vramwise rehearse --gpu a100 --compare amp,checkpoint,fused -- python train.py
      What would mixed precision, checkpointing or a fused optimizer change?

The script runs twice: first to find out the values that it asks the device for (.item(), masks), with its
output kept in pass1.log, then to measure. Files that it writes are written twice. Only the second time
it reads standard input, unless that is a file. --values off runs it once. Where it asks for values that
nobody can know without a GPU (expert routing, the boxes that are kept), it runs again under other
assumptions, silently, and the report has the range of its peaks; --draws 1 does without.

The script's output goes where its own would, the report follows on standard output. With --json the
script's standard output goes to standard error, and standard output has nothing but the report. With -o
the snapshot, the report and the logs are kept in that directory; else in a new temporary one.

Exit status: 0 it fits, 1 it does not; a script that fails by itself passes its own on; 2 it could not be
started.";

/// Run a program on an emulated GPU: will it fit, and what sets its peak?
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The card: a name of `vramwise devices`, or the path of a profile.
    #[arg(long, value_name = "PROFILE", default_value = "h200")]
    gpu: String,
    /// Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; without it, those of the environment.
    #[arg(long, value_name = "SETTINGS")]
    conf: Option<String>,
    /// Run it also with each of these switched on, where its code uses the common interfaces.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    compare: Vec<compare::Strategy>,
    /// How often to draw values that cannot be known, each time under other assumptions, for the range of the
    /// peaks; without it 5 times where there are such values, or 3 where the first show no difference.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    draws: Option<u32>,
    #[command(flatten)]
    surroundings: Surroundings,
    /// The directory of -o.
    #[arg(skip)]
    pub(crate) directory: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// One run and what its history tells.
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    pub(crate) evidence: Vec<Evidence>,
    /// Why figures may be off; empty = they are exact.
    pub(crate) uncertain: Vec<String>,
    /// What other assumptions would have made of it.
    draws: Option<draws::Draws>,
}

/// Rehearses and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let rehearsal = rehearsal(args, context)?;
    if !args.compare.is_empty() {
        return compare::run(&args.compare, args.draws, &rehearsal, context);
    }
    let mut run = Run::new(&rehearsal, context)?;
    run.draw(args.draws, &rehearsal, context)?;
    let report = finished(&rehearsal, &run, true, context)?;
    context.answer(&report, || text::render(&report, context))?;
    Ok(run.status())
}

/// The report, which is kept beside the snapshot. Among the temporary files it stays only where the user is told of it
/// and there is something in it; who interrupts does not come back for it.
fn finished(
    rehearsal: &Rehearsal,
    run: &Run,
    told: bool,
    context: &Context,
) -> Result<json::Report, Failure> {
    let mut report = json::Report::new(rehearsal, run, context.global.top);
    let worth = told && run.outcome.has_something() && !run.outcome.ended.interrupted();
    if worth || rehearsal.directory.is_some() {
        keep(&run.outcome, &report)?;
    } else {
        run.outcome.discard();
        (report.snapshot, report.directory) = (None, None);
    }
    Ok(report)
}

/// What the arguments ask for.
fn rehearsal(args: &Args, context: &Context) -> Result<Rehearsal, Failure> {
    let profile = devices::profile(&args.gpu)?;
    let mut rehearsal = Rehearsal::new(args.command.clone(), profile);
    args.surroundings.apply(&mut rehearsal)?;
    let table = || devices::table_beside(&args.gpu);
    rehearsal.workspaces = rehearsal.workspaces.or_else(table);
    rehearsal.conf.clone_from(&args.conf);
    rehearsal.directory.clone_from(&args.directory);
    rehearsal.replace = context.global.force;
    rehearsal.streams = if context.global.json { Streams::ToStderr } else { Streams::Through };
    Ok(rehearsal)
}

impl Run {
    /// Runs the program and looks at its history.
    pub(crate) fn new(rehearsal: &Rehearsal, context: &Context) -> Result<Self, Failure> {
        let outcome = rehearsal.run().map_err(|error| failure(&error))?;
        let seconds = |ended: vramwise_rehearse::Ended| ended.milliseconds as f64 / 1000.0;
        if let Some(learned) = outcome.learned {
            context.note(&format!("first pass: {:.1} s", seconds(learned)));
        }
        context.note(&format!("second pass: {:.1} s", seconds(outcome.ended)));
        let mut uncertain = outcome.uncertain.clone();
        let evidence = outcome.snapshot().map_or(Ok(Vec::new()), |path| {
            let torch = outcome.processes.first().map_or("", |process| process.torch.as_str());
            evidence::look(path, torch, outcome.oom.map(|_| rehearsal.total_bytes()))
        });
        let evidence = evidence.unwrap_or_else(|error| {
            uncertain.push(format!("the snapshot cannot be read: {error}"));
            Vec::new()
        });
        uncertain.extend(ties(&evidence));
        Ok(Self { outcome, evidence, uncertain, draws: None })
    }

    /// Makes further draws of what cannot be known.
    fn draw(
        &mut self,
        asked: Option<u32>,
        rehearsal: &Rehearsal,
        context: &Context,
    ) -> Result<(), Failure> {
        self.draws = draws::more(asked, rehearsal, self, context)?;
        self.uncertain.extend(self.draws.as_ref().map(draws::Draws::doubt));
        Ok(())
    }

    fn status(&self) -> Status {
        match self.outcome.verdict {
            Verdict::Fits => Status::Fine,
            Verdict::DoesNotFit => Status::Finding,
            Verdict::Unknown if self.outcome.ended.status == 0 => Status::Finding,
            Verdict::Unknown => Status::Child(self.outcome.ended.status),
        }
    }
}

/// What chance may change.
fn ties(evidence: &[Evidence]) -> Vec<String> {
    let mut said = Vec::new();
    for evidence in evidence.iter().filter(|evidence| evidence.events > 0) {
        let on = format!("device {}", evidence.device);
        match evidence.ranges {
            Some(ranges) if ranges.is_single() => {}
            Some(ranges) => said.push(format!(
                "{on}: free blocks of equal size are told apart by addresses, which differ from process \
                 to process; over {} replays the peak of allocated memory is {} to {} bytes, that of \
                 reserved memory {} to {}",
                ranges.runs,
                grouped(ranges.allocated.0),
                grouped(ranges.allocated.1),
                grouped(ranges.reserved.0),
                grouped(ranges.reserved.1)
            )),
            None if evidence.drop_in => said.push(format!(
                "{on}: vramwise's allocator served it; what other addresses from the driver change was not tried"
            )),
            None => said.push(format!(
                "{on}: the history could not be replayed, so that nothing is known of what the driver's \
                 addresses change"
            )),
        }
    }
    said
}

/// Writes the report beside the snapshot.
fn keep(outcome: &Outcome, report: &impl serde::Serialize) -> Result<(), Failure> {
    let path = outcome.directory.join("report.json");
    let text = serde_json::to_vec_pretty(report)
        .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path, &error))?;
    outcome.keep();
    Ok(())
}

/// A rehearsal that could not be made, with what to do.
pub(crate) fn failure(error: &RehearsalError) -> Failure {
    let failure = Failure::from_error(error);
    let failure = match error {
        RehearsalError::Interrupted => failure.kind(Kind::Stopped),
        _ => failure,
    };
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

#[cfg(test)]
pub(crate) fn schema_compared() -> schemars::Schema {
    crate::schema::of::<compare::Comparison>()
}

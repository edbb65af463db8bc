//! `vramwise tune FILE...`.

mod drop_in;
mod json;
mod plot;
mod text;

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_model::settings::Config;
use vramwise_model::stats::{Family, Stats};
use vramwise_replay::{Conditions, Recording, recorded_under, what_if};
use vramwise_tune::{Case, TuneOptions};
use vramwise_types::{Human, TorchVersion};

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = "\
Examples:
  vramwise tune snapshot.pickle
  vramwise tune rank0.pickle rank1.pickle rank2.pickle rank3.pickle
  vramwise tune snapshot.pickle --capacity 24GiB --jitter 20
  vramwise tune snapshot.pickle --plot memory.svg

The first lines of the report are the settings to paste. Every figure is an exact replay of the
recorded program; the report says what it assumes.

Exit status: 0 a report, 1 the model does not reproduce a file (nothing is recommended then) or no
setting fits the capacity, 2 unreadable input.";

/// Find the best allocator settings for a recorded program.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Snapshots with their histories: several ranks, or several runs; a directory means all in it.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Bytes that the process may hold, such as 40GiB; settings that run out of it rank last.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    pub(crate) capacity: Option<u64>,
    /// Also try each setting on N random variations of the history.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::args::variations)]
    pub(crate) jitter: u32,
    /// Seed of the variations; the same seed gives the same report.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Most settings to try.
    #[arg(long, value_name = "N", default_value_t = TuneOptions::CANDIDATES)]
    pub(crate) candidates: usize,
    /// Draw memory over time, before and after, into this SVG file.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    pub(crate) torch: Option<TorchVersion>,
    /// Memory of the card, such as 80GiB, which decides how expandable segments are reserved.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::card)]
    pub(crate) total: Option<u64>,
}

/// One input file, verified.
struct Input {
    file: String,
    device: u32,
    events: usize,
    version: TorchVersion,
    config: Config,
    recording: Recording,
    warnings: Vec<String>,
}

/// Searches and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let files = input::expand(&args.files)?;
    context.protect(&files)?;
    let plot = args.plot.as_ref().map(|path| context.destination(path)).transpose()?;
    if let Some(destination) = &plot {
        destination.distinct_from(files.iter().map(PathBuf::as_path))?;
    }
    if args.candidates == 0 {
        return Err(Failure::new("--candidates is 0: there is nothing to try"));
    }
    let mut inputs = Vec::new();
    for file in &files {
        inputs.push(verified(args, file, context)?);
    }
    if let Some(failed) = inputs.iter().find(|i| !trustworthy(&i.recording)) {
        return refuse(failed, context);
    }
    // One setting is wanted for all files; the first says what is in force now.
    let (version, baseline) = (inputs[0].version, inputs[0].config.clone());
    for other in inputs.iter().filter(|i| i.config != baseline) {
        context.warn(&format!(
            "{}: recorded under other settings than {}; the gain is measured against the latter's",
            other.file, inputs[0].file
        ));
    }
    let mut options = TuneOptions::new(version, baseline);
    options.capacity = args.capacity.or_else(|| match inputs.as_slice() {
        [one] => recorded_capacity(one),
        _ => None,
    });
    options.total = args.total;
    options.jitter = args.jitter;
    options.seed = args.seed;
    options.candidates = args.candidates;
    let case = |input: &Input| {
        let mut case = Case::new(input.file.clone(), &input.recording);
        case.capacity = recorded_capacity(input);
        case
    };
    let cases: Vec<Case> = inputs.iter().map(case).collect();
    affordable(args.jitter, &cases)?;
    let progress = context.progress("trying settings", args.candidates as u64);
    let told = |done, total| {
        progress.set_total(total as u64);
        progress.set(done as u64);
    };
    let report = vramwise_tune::tune_until(&cases, &options, &told, context.stop())
        .ok_or_else(Failure::stopped)?;
    drop(progress);
    if let Some(destination) = plot {
        destination.write(plot::svg(&cases[0], &report, &options).as_bytes())?;
        context.wrote(destination.path());
    }
    let answer = json::Report::new(&options, &inputs, &report);
    context
        .answer(&answer, || text::render(&options, &inputs, &report, &answer.drop_in, context))?;
    let fits = report.candidates[report.recommended].oom_runs == 0;
    Ok(if fits { Status::Fine } else { Status::Finding })
}

/// The capacity that failed requests of a recording point to; the question then is which settings would
/// have fitted.
fn recorded_capacity(input: &Input) -> Option<u64> {
    input.recording.limit.filter(|_| !input.recording.ooms.is_empty())
}

/// Operations that all variations together may have: they are held in memory at one time.
const OPERATIONS_MOST: u64 = 100_000_000;

/// Refuses more variations than memory is there for.
fn affordable(jitter: u32, cases: &[Case]) -> Result<(), Failure> {
    let each = cases.iter().map(|case| case.program.ops.len() as u64).sum::<u64>().max(1);
    if u64::from(jitter).saturating_mul(each) <= OPERATIONS_MOST {
        return Ok(());
    }
    Err(Failure::new(format!("--jitter {jitter} is too much for histories of this length"))
        .hint(format!("--jitter {} is the most for these files", OPERATIONS_MOST / each)))
}

/// Whether figures from this recording's program can be believed: everything up to its end was
/// reproduced, or only its requests are taken.
fn trustworthy(recording: &Recording) -> bool {
    recording.impossible.is_none()
        && recording.first_divergence.is_none()
        && (recording.requests_only || recording.agreement.all_exact())
}

fn verified(args: &Args, file: &std::path::Path, context: &Context) -> Result<Input, Failure> {
    let snapshot = input::read(file, context)?;
    let (number, device) = input::device(&snapshot, file, context)?;
    let version = input::version(args.torch, &snapshot);
    let mut under = recorded_under(&snapshot, device, version);
    let mut notes = std::mem::take(&mut under.notes);
    let mut options = under.verify(version);
    options.total = args.total;
    options.limit = args.capacity;
    options.other_ties = args.torch.is_none();
    let (mut recording, _) = input::verify(device, &options);
    notes.append(&mut recording.assumptions);
    recording.assumptions = notes;
    let mut warnings: Vec<String> = snapshot.warnings.iter().map(|w| w.message.clone()).collect();
    if let Some((event, _)) = under.changes.first() {
        warnings.push(format!(
            "the settings changed in mid-run, first before event {event}: one string for the whole run is looked for, \
             and compared with the one that it began with; vramwise.SettingsSchedule.from_history looks for one per phase"
        ));
    }
    let config = under.config;
    warnings.extend(unlike(&recording, &config, version));
    Ok(Input {
        file: input::shown(file),
        device: number,
        events: recording.entries,
        version: recording.version,
        config,
        recording,
        warnings,
    })
}

/// What is said where a replay from an empty cache comes to another peak than the recording.
fn unlike(recording: &Recording, config: &Config, version: TorchVersion) -> Option<String> {
    if recording.requests_only {
        return None;
    }
    let conditions =
        Conditions { limit: recording.limit, ..Conditions::new(config.clone(), version) };
    let outcome = what_if(&recording.program, &recording.calls, &conditions);
    let peak = |stats: &Stats| u64::try_from(stats.all(Family::ReservedBytes).peak).unwrap_or(0);
    let (replayed, recorded) = (peak(&outcome.stats), peak(&recording.stats));
    (replayed != recorded).then(|| {
        format!(
            "the recording has at most {} reserved, a replay of it that starts from an empty cache {}: \
             what stands for the present settings here is the replay, not the recording",
            Human(recorded),
            Human(replayed)
        )
    })
}

/// A recording that the model does not reproduce proves nothing about other settings.
fn refuse(failed: &Input, context: &Context) -> Result<Status, Failure> {
    context.answer(&json::Refusal::new(failed), || text::refusal(failed, context.style()))?;
    Ok(Status::Finding)
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

#[cfg(test)]
pub(crate) fn schema_refused() -> schemars::Schema {
    crate::schema::of::<json::Refusal>()
}

//! `vramwise explain FILE...`.

mod json;
mod proof_json;
mod proof_text;
mod ranks;
mod source;
mod text;

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_analyze::{failure, oom};
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::several;

const EXAMPLES: &str = "\
Examples:
  vramwise explain train.log
  python train.py 2>&1 | tee train.log; vramwise explain train.log
  kubectl logs job/train | vramwise explain -
  vramwise explain rank*.log --json
  vramwise explain snapshot.pickle
      What a replay proves: the cause, the blocks that are in the way, and which settings or which
      capacity would have let the request pass.
  vramwise explain snapshot.pickle --capacity 24GiB
      Would it run out of memory there, and what would help.
  vramwise explain logs/
      All logs and snapshots of a directory, or where it has none of the folders inside: which rank
      ran out, and which first.

Every out-of-memory error of a text is found, whatever stands around it: other ranks, colours,
progress bars, wrapped lines; UTF-16, gzip and zstd are read too.
Exit status: 0 explained (or none found), 1 some files cannot be read, 2 none can, or wrong usage.";

/// Say why a program ran out of memory, from its log or its snapshot.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Logs, or any text with the error in it, and snapshots; a directory means all in it, - standard
    /// input.
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, required = true)]
    files: Vec<PathBuf>,
    /// Snapshots: bytes that the process could hold, such as 40GiB; without it, as was recorded.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    capacity: Option<u64>,
    /// Snapshots: memory of the card, such as 80GiB, to tell other processes from PyTorch itself.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::card)]
    total: Option<u64>,
    /// Snapshots: PyTorch version whose allocator is meant; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
    /// Snapshots: frames of the user's own code that name a place.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::frames)]
    frames: usize,
}

/// One file and what was found in it.
struct Explained {
    /// The file's name as it is shown.
    file: String,
    found: Found,
}

/// What a file told.
enum Found {
    Log(oom::LogReport),
    Snapshot(Vec<failure::Device>),
}

/// Reads the files and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let files = several::once(source::expand(&args.files)?, context);
    context.protect(&files)?;
    let several = several::each(&files, context, |path| {
        Ok(Explained { file: input::shown(path), found: one(args, path, context)? })
    })?;
    let explained = &several.read;
    let is_log = |one: &Explained| matches!(one.found, Found::Log(_));
    if explained.iter().all(is_log)
        && (args.capacity.is_some() || args.total.is_some() || context.global.device.is_some())
    {
        context.warn(
            "--capacity, --total and --device are about snapshots; a log is explained as it stands",
        );
    }
    let ranks = ranks::Ranks::of(explained);
    let top = context.global.top;
    let report = json::Report::new(explained, &ranks, several.unreadable.clone(), top);
    context.answer(&report, || text::render(explained, &ranks, context))?;
    Ok(several.status(false))
}

/// Reads and explains one file.
fn one(args: &Args, path: &std::path::Path, context: &Context) -> Result<Found, Failure> {
    Ok(match source::read(path, context)? {
        source::Source::Log(text) => {
            let report = oom::explain_log(&text);
            if report.explanations.is_empty()
                && let Some(why) = source::is_no_log(path, &text)
            {
                return Err(why);
            }
            Found::Log(report)
        }
        source::Source::Snapshot(snapshot) => {
            Found::Snapshot(replayed(args, &snapshot, path, context)?)
        }
    })
}

/// Explains a snapshot by replay.
fn replayed(
    args: &Args,
    snapshot: &vramwise_trace::Snapshot,
    path: &std::path::Path,
    context: &Context,
) -> Result<Vec<failure::Device>, Failure> {
    // Says what is wrong where there is no such device, or no history at all.
    input::device_or_first(snapshot, path, context.global.device)?;
    let options = failure::Options {
        device: context.global.device,
        capacity: args.capacity,
        total: args.total,
        frames: args.frames,
        ..failure::Options::new(input::version(args.torch, snapshot))
    };
    Ok(failure::explain(snapshot, &options))
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

//! `vramwise diff A B`.

mod json;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueHint;
use vramwise_analyze::diff;
use vramwise_analyze::peak::Options;
use vramwise_trace::Snapshot;
use vramwise_types::TorchVersion;

use super::inspect::{self, Grouping};
use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = "\
Examples:
  vramwise diff before.pickle after.pickle
      What changed: settings, peaks, waste, and which lines hold more or less at the peak.
  vramwise diff main.pickle branch.pickle --by module --top 20
  vramwise diff rank0.pickle rank7.pickle --json

Lines are the same where file name and function are; moved lines and other addresses do not matter.

Exit status: 0 the report was written, 2 unreadable input or wrong usage.";

/// Say what changed between two snapshots.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot before.
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    before: PathBuf,
    /// The snapshot after.
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    after: PathBuf,
    /// How the blocks are grouped.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    by: Grouping,
    /// Frames of the user's own code that tell two stacks apart.
    #[arg(long, value_name = "N", default_value_t = 1)]
    frames: usize,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the files look like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// One file, read.
struct Input {
    file: String,
    snapshot: Arc<Snapshot>,
    options: Options,
}

/// Reads both files and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.before, &args.after])?;
    if args.before == args.after && args.before.as_os_str() == "-" {
        return Err(Failure::new("standard input can be one of the two files only"));
    }
    let a = read(&args.before, args, context)?;
    let b = read(&args.after, args, context)?;
    let devices = diff::diff((&a.snapshot, &a.options), (&b.snapshot, &b.options))
        .map_err(|(second, why)| inspect::refused(&why, if second { &b.file } else { &a.file }))?;
    let report = json::Report::new([&a, &b], &devices, args.by.name(), context.global.top);
    context.answer(&report, || text::render(&report, context))?;
    Ok(Status::Fine)
}

fn read(path: &Path, args: &Args, context: &Context) -> Result<Input, Failure> {
    let snapshot = input::read(path, context)?;
    let version = input::version(args.torch, &snapshot);
    let options = Options {
        device: context.global.device,
        by: args.by.by(),
        frames: args.frames,
        ..Options::new(version)
    };
    Ok(Input { file: input::shown(path), snapshot, options })
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

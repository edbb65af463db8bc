//! `vramwise diff A B`.

mod json;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueHint;
use vramwise_analyze::diff;
use vramwise_analyze::peak::{CustomRule, Options};
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
  vramwise diff main.pickle branch.pickle --by category --rules mine.toml
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
    /// TOML file with rules for categories of your own.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Frames of the user's own code that tell two stacks apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::frames)]
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
    context.protect([&args.before, &args.after].into_iter().chain(&args.rules))?;
    if args.before == args.after && args.before.as_os_str() == "-" {
        return Err(Failure::new("standard input can be one of the two files only"));
    }
    if args.rules.is_some() && args.by != Grouping::Category {
        return Err(Failure::new("--rules are about categories, which this table does not show")
            .hint("add --by category"));
    }
    let rules = args.rules.as_deref().map(inspect::rules::read).transpose()?.unwrap_or_default();
    let a = read(&args.before, args, &rules, context)?;
    let b = read(&args.after, args, &rules, context)?;
    let devices = diff::diff((&a.snapshot, &a.options), (&b.snapshot, &b.options))
        .map_err(|(second, why)| inspect::refused(&why, if second { &b.file } else { &a.file }))?;
    let report = json::Report::new([&a, &b], &devices, args.by.name(), context.global.top);
    context.answer(&report, || text::render(&report, context))?;
    Ok(Status::Fine)
}

fn read(
    path: &Path,
    args: &Args,
    rules: &[CustomRule],
    context: &Context,
) -> Result<Input, Failure> {
    let snapshot = input::read(path, context)?;
    let version = input::version(args.torch, &snapshot);
    let options = Options {
        device: context.global.device,
        by: args.by.by(),
        frames: args.frames,
        rules: rules.to_vec(),
        ..Options::new(version)
    };
    Ok(Input { file: input::shown(path), snapshot, options })
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

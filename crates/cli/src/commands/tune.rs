//! `vramwise tune FILE...`.

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  vramwise tune snapshot.pickle
  vramwise tune rank0.pickle rank1.pickle rank2.pickle rank3.pickle
  vramwise tune snapshot.pickle --capacity 24GiB --jitter 20
  vramwise tune snapshot.pickle --plot memory.svg

The first lines of the report are the settings to paste. Every figure is an exact replay of the
recorded program; the report says what it assumes.";

/// Find the best allocator settings for a recorded program.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Snapshots with their histories: several ranks, or several runs; a directory means all in it.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Bytes that the process may hold, such as 40GiB; settings that run out of it rank last.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size)]
    pub(crate) capacity: Option<u64>,
    /// Also try each setting on N random variations of the history.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) jitter: u32,
    /// Seed of the variations and of the search; the same seed gives the same report.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Most settings to try.
    #[arg(long, value_name = "N")]
    pub(crate) candidates: Option<usize>,
    /// Draw memory over time, before and after, into this SVG file.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION")]
    pub(crate) torch: Option<TorchVersion>,
    /// Memory of the card, such as 80GiB, which decides how expandable segments are reserved.
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size)]
    pub(crate) total: Option<u64>,
}

/// Searches and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect(&args.files)?;
    Err(Failure::new("this build cannot tune yet"))
}

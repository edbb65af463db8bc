//! `vramwise validate FILE`.

use std::path::PathBuf;

use clap::ValueHint;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  vramwise validate snapshot.pickle
  vramwise validate --json rank0.pickle.gz
  ssh host cat snapshot.pickle | vramwise validate -

Exit status: 0 it can be replayed, 1 it cannot (the report says why), 2 it cannot be read.";

/// Say what is in a snapshot, and whether it can be replayed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot: a pickle or JSON file, also gzipped or zstd-compressed; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Reads the file and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    Err(Failure::new("this build cannot read snapshots yet"))
}

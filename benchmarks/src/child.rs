//! What is measured, each in a process of its own.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

/// The arguments of one measurement.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Load a snapshot and find its peak.
    Load { file: PathBuf },
    /// Load a snapshot and inspect it.
    Inspect { file: PathBuf },
    /// Replay a recording under every setting.
    Replay {
        file: PathBuf,
        #[arg(long)]
        rounds: usize,
    },
    /// Search settings for a recording.
    Tune {
        file: PathBuf,
        #[arg(long)]
        candidates: usize,
    },
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Load { file } => print(&crate::load::load(file)?),
        What::Inspect { file } => print(&crate::inspect::inspect(file)?),
        What::Tune { file, candidates } => print(&crate::tune::search(file, *candidates)?),
        What::Replay { file, rounds } => print(&crate::replay::replay(file, *rounds)?),
    }
}

fn print(result: &impl Serialize) -> Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(result)?)?;
    Ok(())
}

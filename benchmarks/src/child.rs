//! What is measured, each in a process of its own.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use vramwise_trace::{ReadOptions, Snapshot};
use vramwise_types::Action;

use crate::measure::{Cost, own_peak_bytes};

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

/// What loading a snapshot took and found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Loaded {
    pub(crate) cost: Cost,
    /// Entries of all histories.
    pub(crate) events: usize,
    /// Highest sum of requested bytes in use.
    pub(crate) peak_requested_bytes: u64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Load { file } => print(&load(file)?),
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

fn load(file: &Path) -> Result<Loaded> {
    let start = Instant::now();
    let snapshot = vramwise_trace::read_path(file, &ReadOptions::default())?;
    let peak_requested_bytes = peak(&snapshot);
    let seconds = start.elapsed().as_secs_f64();
    let cost = Cost { seconds, peak_bytes: own_peak_bytes()? };
    let events = snapshot.devices.iter().map(|d| d.events.len()).sum();
    Ok(Loaded { cost, events, peak_requested_bytes })
}

/// The highest sum of requested bytes between an allocation and its free, over all devices.
fn peak(snapshot: &Snapshot) -> u64 {
    let mut highest = 0;
    for device in &snapshot.devices {
        let mut now = 0_u64;
        for (action, size) in device.events.action.iter().zip(&device.events.size) {
            match action {
                Action::Alloc => now += size,
                Action::FreeCompleted => now = now.saturating_sub(*size),
                _ => {}
            }
            highest = highest.max(now);
        }
    }
    highest
}

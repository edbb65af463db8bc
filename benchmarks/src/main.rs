//! Measures vramwise against its budgets for speed and memory.
//!
//! Every figure is a ratio within one run on one machine: against CPython's `pickle.load` of the same
//! file, against the size of the file, or against the clock over a known number of events. What is
//! compared runs alternately, and the median counts. Run it with `cargo xtask bench`.

#![forbid(unsafe_code)]

mod child;
mod inspect;
mod load;
mod measure;
mod replay;
mod report;
mod tune;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::report::Report;

/// Measure vramwise against its budgets.
#[derive(Parser)]
#[command(name = "vramwise-bench", bin_name = "cargo xtask bench --")]
struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only the measurements whose name begins with this.
    #[arg(long, default_value = "")]
    only: String,
    /// Entries of the generated history.
    #[arg(long, default_value_t = 1_000_000)]
    events: usize,
    /// Runs of each side.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where generated inputs are kept.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// Where the recorded histories are.
    #[arg(long, default_value = "testdata/snapshots")]
    recordings: PathBuf,
}

#[derive(Subcommand)]
enum Task {
    /// Write a generated snapshot.
    Generate {
        /// The file.
        file: PathBuf,
        /// Seed of the program that is simulated.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measure one thing in this process and print it as JSON.
    #[command(hide = true)]
    Child(child::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.task {
        Some(Task::Generate { file, seed }) => generate(*seed, args.events, file).map(|()| true),
        Some(Task::Child(child)) => child::run(child).map(|()| true),
        None => measure_all(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            report::say(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Runs the measurements; `false` if a budget is exceeded.
fn measure_all(args: &Args) -> Result<bool> {
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    warn_if_busy();
    let mut report = Report::new(&args.only);
    load::measure(args, &mut report)?;
    inspect::measure(args, &mut report)?;
    replay::measure(args, &mut report)?;
    tune::measure(args, &mut report)?;
    Ok(report.finish())
}

/// Says so if other programs will make the wall clocks run long.
fn warn_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split_whitespace().next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if load > cores as f64 / 2.0 {
        report::say(&format!(
            "note: the machine is busy (load {load} on {cores} cores); figures in seconds will be \
             too high, ratios and rates per core less so"
        ));
    }
}

/// Writes the snapshot of a simulated training run.
fn generate(seed: u64, events: usize, file: &Path) -> Result<()> {
    let run = vramwise_testkit::training::run(seed, events);
    let out = File::create(file).with_context(|| format!("cannot make {}", file.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    vramwise_testkit::snapshot::write(&run, &mut out)?;
    out.flush()?;
    Ok(())
}

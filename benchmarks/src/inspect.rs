//! `inspect` of a large snapshot, from the file to the answer, against CPython's `pickle.load` alone.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use vramwise_analyze::peak::{self, Evidence, Options};
use vramwise_trace::ReadOptions;

use crate::Args;
use crate::load::{PYTHON, input};
use crate::measure::{Cost, child, median, ourselves, own_peak_bytes};
use crate::report::{Budget, Report, say};

/// What an inspection took and found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Inspected {
    pub(crate) cost: Cost,
    /// Whether a replay reproduced the file, which takes longer than walking through it.
    pub(crate) replayed: bool,
    pub(crate) peak_allocated_bytes: u64,
}

/// Measures the generated snapshot.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<()> {
    if !report.wants("inspect") {
        return Ok(());
    }
    let path = input(args)?;
    let size = std::fs::metadata(&path)?.len();
    let file = path.to_str().context("the path of the input is not UTF-8")?;
    let mut python: Vec<Cost> = Vec::new();
    let mut ours: Vec<Inspected> = Vec::new();
    for round in 0..args.rounds {
        say(&format!("inspect: round {} of {}", round + 1, args.rounds));
        python.push(child(Command::new("python3").args(["-c", PYTHON, file]))?);
        ours.push(child(&mut ourselves(&["inspect", file])?)?);
    }
    let python_seconds = median(python.iter().map(|c| c.seconds));
    let seconds = median(ours.iter().map(|i| i.cost.seconds));
    let peak = ours.iter().map(|i| i.cost.peak_bytes).max().unwrap_or(0);
    let in_files = peak as f64 / size as f64;
    if ours.iter().any(|i| !i.replayed) {
        say("note: the replay does not reproduce the generated history; it was walked through");
    }
    let faster = "times CPython's pickle.load";
    report.figure("inspect.speed", python_seconds / seconds, faster, Budget::AtLeast(2.0));
    report.figure("inspect.memory", in_files, "times the file (peak)", Budget::AtMost(2.0));
    report.figure("inspect.seconds", seconds, "seconds", Budget::None);
    report.figure("inspect.seconds.python", python_seconds, "seconds", Budget::None);
    Ok(())
}

/// Reads a snapshot and inspects it, in this process.
pub(crate) fn inspect(file: &Path) -> Result<Inspected> {
    let start = Instant::now();
    let snapshot = vramwise_trace::read_path(file, &ReadOptions::default())?;
    let options = Options::new(snapshot.version_guess.unwrap_or_default());
    let found = peak::inspect(&snapshot, &options).map_err(|why| anyhow!("{why:?}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let cost = Cost { seconds, peak_bytes: own_peak_bytes()? };
    let replayed = found.devices.iter().all(|d| d.evidence == Evidence::Replay);
    let peaks = found.devices.iter().filter_map(|d| d.peaks.as_ref());
    let peak_allocated_bytes = peaks.map(|p| p.allocated.bytes).max().unwrap_or(0);
    Ok(Inspected { cost, replayed, peak_allocated_bytes })
}

//! Loading a large snapshot and finding its peak, against CPython's `pickle.load` of the same file.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use vramwise_trace::{ReadOptions, Snapshot};
use vramwise_types::Action;

use crate::Args;
use crate::measure::{Cost, child, median, ourselves, own_peak_bytes};
use crate::report::{Budget, Report, say};

/// What loading a snapshot took and found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Loaded {
    pub(crate) cost: Cost,
    /// Entries of all histories.
    pub(crate) events: usize,
    /// Highest sum of requested bytes in use.
    pub(crate) peak_requested_bytes: u64,
}

/// Loads the file of its first argument and prints what that took.
pub(crate) const PYTHON: &str = "
import gzip, json, pickle, sys, time
opener = gzip.open if sys.argv[1].endswith('.gz') else open
with opener(sys.argv[1], 'rb') as file:
    start = time.perf_counter()
    snapshot = pickle.load(file)
    seconds = time.perf_counter() - start
with open('/proc/self/status') as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith('VmHWM'))
print(json.dumps({'seconds': seconds, 'peak_bytes': peak * 1024}))
";

/// Measures a plain and a gzipped snapshot.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<()> {
    if !report.wants("load") {
        return Ok(());
    }
    let plain = input(args)?;
    let size = std::fs::metadata(&plain)?.len();
    say(&format!("{}: {} events, {size} bytes", plain.display(), args.events));
    if report.wants("load.plain") {
        one("load.plain", &plain, size, args, report)?;
    }
    if report.wants("load.gz") {
        one("load.gz", &gzipped(&plain)?, size, args, report)?;
    }
    Ok(())
}

/// One file; memory counts in multiples of `size`, that of the uncompressed snapshot.
fn one(name: &str, path: &Path, size: u64, args: &Args, report: &mut Report) -> Result<()> {
    let file = path.to_str().context("the path of the input is not UTF-8")?;
    let mut python: Vec<Cost> = Vec::new();
    let mut ours: Vec<Loaded> = Vec::new();
    for round in 0..args.rounds {
        say(&format!("{name}: round {} of {}", round + 1, args.rounds));
        python.push(child(Command::new("python3").args(["-c", PYTHON, file]))?);
        ours.push(child(&mut ourselves(&["load", file])?)?);
    }
    let python_seconds = median(python.iter().map(|c| c.seconds));
    let seconds = median(ours.iter().map(|l| l.cost.seconds));
    let in_files = |bytes: u64| bytes as f64 / size as f64;
    let python_peak = in_files(python.iter().map(|c| c.peak_bytes).max().unwrap_or(0));
    let peak = in_files(ours.iter().map(|l| l.cost.peak_bytes).max().unwrap_or(0));
    let speed = python_seconds / seconds;
    let least = if name == "load.plain" { Budget::AtLeast(10.0) } else { Budget::None };
    report.figure(&format!("{name}.speed"), speed, "times CPython's pickle.load", least);
    report.figure(&format!("{name}.memory"), peak, "times the file (peak)", Budget::AtMost(2.0));
    report.figure(
        &format!("{name}.memory.python"),
        python_peak,
        "times the file (peak)",
        Budget::None,
    );
    report.figure(&format!("{name}.seconds"), seconds, "seconds", Budget::None);
    report.figure(&format!("{name}.seconds.python"), python_seconds, "seconds", Budget::None);
    Ok(())
}

/// The generated snapshot, made on first use.
pub(crate) fn input(args: &Args) -> Result<PathBuf> {
    let path = args.dir.join(format!("training-{}.pickle", args.events));
    if !path.exists() {
        say(&format!("generating {}", path.display()));
        let half_done = path.with_extension("part");
        crate::generate(1, args.events, &half_done)?;
        std::fs::rename(&half_done, &path)?;
    }
    Ok(path)
}

/// The same file, compressed as `gzip` does it.
fn gzipped(plain: &Path) -> Result<PathBuf> {
    let path = plain.with_extension("pickle.gz");
    if !path.exists() {
        let half_done = path.with_extension("part");
        let out = BufWriter::new(File::create(&half_done)?);
        let mut encoder = GzEncoder::new(out, Compression::new(6));
        std::io::copy(&mut BufReader::new(File::open(plain)?), &mut encoder)?;
        encoder.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        std::fs::rename(&half_done, &path)?;
    }
    Ok(path)
}

/// Reads a snapshot and finds its peak, in this process.
pub(crate) fn load(file: &Path) -> Result<Loaded> {
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

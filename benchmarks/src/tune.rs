//! The search for settings: how many, how fast, and whether memory depends on their number.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use vramwise_replay::{Recording, VerifyOptions, recorded_config};
use vramwise_trace::ReadOptions;
use vramwise_tune::{Case, TuneOptions, tune};

use crate::Args;
use crate::measure::{Cost, child, median, ourselves, process_cpu_seconds};
use crate::report::{Budget, Report, say};

/// What one search took and found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Tuned {
    cost: Cost,
    cpu_seconds: f64,
    settings: usize,
}

/// Measures the search on the recording of the main example.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<()> {
    if !report.wants("tune") {
        return Ok(());
    }
    let path: PathBuf = args.recordings.join("moe__default.snapshot.pickle.gz");
    let file = path.to_str().context("the path of the recording is not UTF-8")?;
    let usual = TuneOptions::CANDIDATES;
    let search = |candidates: usize| -> Result<Tuned> {
        child(&mut ourselves(&["tune", file, "--candidates", &candidates.to_string()])?)
    };
    let mut runs: Vec<Tuned> = Vec::new();
    for round in 0..args.rounds {
        say(&format!("tune: round {} of {}", round + 1, args.rounds));
        runs.push(search(usual)?);
    }
    let few = search(usual / 4)?;
    let many = search(usual * 4)?;
    let settings = runs.first().context("no round")?.settings as f64;
    let seconds = median(runs.iter().map(|r| r.cost.seconds));
    let cores = median(runs.iter().map(|r| r.cpu_seconds / 2.0));
    report.figure("tune.settings", settings, "settings, default search", Budget::AtLeast(100.0));
    report.figure("tune.seconds", seconds, "seconds, default search", Budget::AtMost(2.0));
    report.figure("tune.seconds.cpu", cores, "seconds on the core, halved", Budget::None);
    let growth = many.cost.peak_bytes as f64 / few.cost.peak_bytes as f64;
    let unit = format!("times: {} against {} settings", many.settings, few.settings);
    report.figure("tune.memory.growth", growth, &unit, Budget::AtMost(1.2));
    let mib = many.cost.peak_bytes as f64 / f64::from(1 << 20);
    report.figure("tune.memory", mib, "MiB (peak)", Budget::None);
    Ok(())
}

/// In the child: one search, as `vramwise tune` does it.
pub(crate) fn search(file: &Path, candidates: usize) -> Result<Tuned> {
    let start = Instant::now();
    let snapshot = vramwise_trace::read_path(file, &ReadOptions::default())?;
    let device = snapshot.devices.iter().find(|d| !d.events.is_empty()).context("no history")?;
    let version = snapshot.version_guess.unwrap_or_default();
    let (config, _) = recorded_config(snapshot.settings.as_ref(), version);
    let recording = Recording::verify(device, &VerifyOptions::new(config.clone(), version));
    ensure!(recording.first_divergence.is_none(), "{} is not reproduced", file.display());
    let mut options = TuneOptions::new(version, config);
    options.candidates = candidates;
    let report = tune(&[Case::new("bench", &recording)], &options, &|_, _| {});
    let seconds = start.elapsed().as_secs_f64();
    let cost = Cost { seconds, peak_bytes: crate::measure::own_peak_bytes()? };
    Ok(Tuned { cost, cpu_seconds: process_cpu_seconds()?, settings: report.candidates.len() })
}

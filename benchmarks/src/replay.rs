//! Replay speed on one core: recorded programs under PyTorch's default and under other settings.
//!
//! Each recording is verified first, since only a program that the model reproduces is worth timing.
//! Then its program is replayed again and again until a million entries of the history have been
//! covered. The clock is the time on the core, so that other programs on the machine do not count.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use vramwise_model::settings::{Config, parse};
use vramwise_model::stats::Family;
use vramwise_replay::{Conditions, Recording, VerifyOptions, recorded_config, what_if};
use vramwise_trace::ReadOptions;
use vramwise_types::TorchVersion;

use crate::Args;
use crate::measure::{child, cpu_seconds, median, ourselves};
use crate::report::{Budget, Report, say};

/// Settings to replay under, with the names that the figures carry. Garbage collection works only
/// under a limit, so it gets the peak of the default as one.
const SETTINGS: [(&str, &str); 14] = [
    ("default", ""),
    ("split32", "max_split_size_mb:32"),
    ("split64", "max_split_size_mb:64"),
    ("split128", "max_split_size_mb:128"),
    ("split512", "max_split_size_mb:512"),
    ("nonsplit", "max_split_size_mb:64,max_non_split_rounding_mb:128"),
    ("round2", "roundup_power2_divisions:2"),
    ("round4", "roundup_power2_divisions:4"),
    ("round8", "roundup_power2_divisions:8"),
    ("roundlist", "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]"),
    ("gc60", "garbage_collection_threshold:0.6"),
    ("gc80split128", "garbage_collection_threshold:0.8,max_split_size_mb:128"),
    ("expandable", "expandable_segments:True"),
    ("expandableround8", "expandable_segments:True,roundup_power2_divisions:8"),
];

/// Entries to cover with each program.
const ENTRIES: usize = 1_000_000;

/// Entries covered and seconds taken.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Speed {
    entries: usize,
    seconds: f64,
}

/// What one recording gave: its name, then one speed for each of the settings, and the verification.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Replayed {
    settings: Vec<Speed>,
    verify: Speed,
}

/// Measures every recording of the directory.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<()> {
    if !report.wants("replay") {
        return Ok(());
    }
    let files = recordings(&args.recordings)?;
    ensure!(!files.is_empty(), "no *__default.snapshot.pickle.gz in {}", args.recordings.display());
    let mut results: Vec<(String, Replayed)> = Vec::new();
    for path in &files {
        let name = name(path);
        say(&format!("replay: {name}"));
        let file = path.to_str().context("the path of a recording is not UTF-8")?;
        let rounds = args.rounds.to_string();
        results.push((name, child(&mut ourselves(&["replay", file, "--rounds", &rounds])?)?));
    }
    for (i, (setting, _)) in SETTINGS.iter().enumerate() {
        let of = |r: &Replayed| r.settings[i];
        let least = if i == 0 { 10e6 } else { 5e6 };
        let name = format!("replay.{setting}");
        let slowest = results.iter().min_by(|a, b| rate(of(&a.1)).total_cmp(&rate(of(&b.1))));
        if let Some((recording, replayed)) = slowest {
            let unit = format!("entries/s, slowest: {recording}");
            report.figure(&name, rate(of(replayed)), &unit, Budget::AtLeast(least));
        }
        let all = together(results.iter().map(|(_, r)| of(r)));
        report.figure(&format!("{name}.all"), all, "entries/s, all recordings", Budget::None);
    }
    let verify = together(results.iter().map(|(_, r)| r.verify));
    report.figure("replay.verify", verify, "entries/s, all recordings", Budget::None);
    Ok(())
}

fn rate(speed: Speed) -> f64 {
    speed.entries as f64 / speed.seconds
}

/// The rate over all: entries by seconds, not the mean of the rates.
fn together(speeds: impl Iterator<Item = Speed>) -> f64 {
    rate(speeds.fold(Speed::default(), |sum, s| Speed {
        entries: sum.entries + s.entries,
        seconds: sum.seconds + s.seconds,
    }))
}

/// The recordings made under PyTorch's default settings.
fn recordings(directory: &Path) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(directory)
        .with_context(|| format!("cannot list the recordings in {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in list {
        let path = entry?.path();
        if path.to_string_lossy().ends_with("__default.snapshot.pickle.gz") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.split("__").next().unwrap_or_default().to_owned()
}

/// In the child: one recording under every setting.
pub(crate) fn replay(file: &Path, rounds: usize) -> Result<Replayed> {
    let snapshot = vramwise_trace::read_path(file, &ReadOptions::default())?;
    let device = snapshot.devices.iter().find(|d| !d.events.is_empty()).context("no history")?;
    let version = TorchVersion::REFERENCE;
    let (config, _) = recorded_config(snapshot.settings.as_ref(), version);
    let options = VerifyOptions::new(config, version);
    let recording = Recording::verify(device, &options);
    ensure!(recording.first_divergence.is_none(), "{} is not reproduced", file.display());
    let peak = recording.stats.all(Family::ReservedBytes).peak;
    let peak = u64::try_from(peak).context("a peak below 0")?;

    let repeats = ENTRIES.div_ceil(recording.entries.max(1));
    let timed = |work: &dyn Fn()| -> Result<Speed> {
        let mut seconds = Vec::new();
        for _ in 0..rounds.max(1) {
            let start = cpu_seconds()?;
            (0..repeats).for_each(|_| work());
            seconds.push(cpu_seconds()? - start);
        }
        Ok(Speed { entries: repeats * recording.entries, seconds: median(seconds) })
    };
    let mut settings = Vec::new();
    for (_, conf) in SETTINGS {
        let config: Config = parse(conf, version)?.config;
        let mut conditions = Conditions::new(config, version);
        if conditions.config.garbage_collection_threshold > 0.0 {
            conditions.limit = Some(peak);
        }
        settings.push(timed(&|| {
            let outcome = what_if(&recording.program, &recording.calls, &conditions);
            std::hint::black_box(outcome);
        })?);
    }
    let verify = timed(&|| {
        std::hint::black_box(Recording::verify(device, &options));
    })?;
    Ok(Replayed { settings, verify })
}

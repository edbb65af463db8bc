//! `cargo xtask conformance`: PyTorch's own allocator against the model, release by release.
//!
//! Each given PyTorch runs the programs of `tests/conformance/programs.py` on the emulated device under every
//! setting, and `vramwise replay` must reproduce each recording. No GPU is needed, but PyTorch's CUDA builds are,
//! and half a minute or more for each pair of release and setting; recordings that are there are not made again.

mod check;
mod record;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};

use crate::metadata::Metadata;
use crate::shell;
use record::Pythons;
use settings::{SETTINGS, Setting};

/// Options of `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A Python with a CUDA build of PyTorch; may be given several times.
    #[arg(long, value_name = "PATH")]
    python: Vec<PathBuf>,
    /// A directory of virtual environments, each with a PyTorch.
    #[arg(long, value_name = "DIR")]
    venvs: Option<PathBuf>,
    /// Only the settings whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Releases and settings at one time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Make recordings again that are there.
    #[arg(long)]
    again: bool,
}

/// What came out for one release and one setting.
struct Outcome {
    exact: usize,
    programs: usize,
    differences: Vec<String>,
}

/// Records, replays, prints the table; fails if anything differs.
pub(crate) fn run(args: &Args) -> Result<()> {
    let packages = ["vramwise-cli", "vramwise-emulator", "vramwise-nvrtc"];
    let mut build = shell::cargo(&["build", "--profile", "quick"]);
    for package in packages {
        build.args(["--package", package]);
    }
    shell::run(&mut build)?;
    let target = Metadata::load()?.target_directory;
    let pythons = Pythons::find(&args.python, args.venvs.as_deref())?;
    let bench = record::Bench {
        program: target.join("quick").join("vramwise"),
        recordings: target.join("conformance"),
        again: args.again,
    };
    let jobs: Vec<(usize, &Setting)> = SETTINGS
        .iter()
        .filter(|setting| setting.name.contains(&args.only))
        .flat_map(|setting| pythons.all.iter().enumerate().map(move |(n, p)| (n, p, setting)))
        .filter(|(_, python, setting)| setting.known_in(&python.torch))
        .map(|(n, _, setting)| (n, setting))
        .collect();
    ensure!(!jobs.is_empty(), "no setting is called anything with '{}'", args.only);
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                while let Some((n, setting)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let python = &pythons.all[*n];
                    let outcome = bench
                        .record(python, setting)
                        .and_then(|recorded| check::all(&bench.program, python, &recorded));
                    match outcome {
                        Ok(outcome) => {
                            let (torch, name) = (&python.torch, setting.name);
                            let (exact, of) = (outcome.exact, outcome.programs);
                            shell::say(&format!("torch {torch} {name}: {exact} of {of} exact"));
                            let mut outcomes =
                                outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                            outcomes.insert((setting.name, *n), outcome);
                        }
                        Err(error) => {
                            let mut failure =
                                failure.lock().unwrap_or_else(PoisonError::into_inner);
                            *failure = Some(error);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&pythons, &outcomes)
}

fn report(pythons: &Pythons, outcomes: &BTreeMap<(&str, usize), Outcome>) -> Result<()> {
    let mut head = format!("{:<20}", "");
    for python in &pythons.all {
        head.push_str(&format!("{:>10}", python.torch));
    }
    shell::say(&format!("\n{head}"));
    let (mut wrong, mut all) = (0, 0);
    for setting in SETTINGS {
        let mut row = format!("{:<20}", setting.name);
        let mut any = false;
        for n in 0..pythons.all.len() {
            let outcome = outcomes.get(&(setting.name, n));
            any |= outcome.is_some();
            let cell = outcome.map_or("-".to_owned(), |o| format!("{}/{}", o.exact, o.programs));
            row.push_str(&format!("{cell:>10}"));
        }
        if any {
            shell::say(&row);
        }
    }
    for ((setting, n), outcome) in outcomes {
        wrong += outcome.programs - outcome.exact;
        all += outcome.programs;
        for difference in &outcome.differences {
            shell::say(&format!("torch {} {setting}: {difference}", pythons.all[*n].torch));
        }
    }
    ensure!(wrong == 0, "{wrong} of {all} recordings are not reproduced");
    shell::say(&format!("all {all} recordings are reproduced to the byte"));
    Ok(())
}

/// Reads a gzip file whole.
fn unpack(path: &std::path::Path) -> Result<Vec<u8>> {
    let file =
        std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

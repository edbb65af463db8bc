//! Records the programs under the emulated device.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::settings::Setting;
use crate::shell;

/// The programs, relative to the root of the workspace.
const PROGRAMS: &str = "tests/conformance/programs.py";
/// Memory of the emulated card: small enough to become full.
const MEMORY: &str = "12GiB";

/// One PyTorch.
pub(super) struct Python {
    pub(super) path: PathBuf,
    /// Its release, such as `2.9.1`.
    pub(super) torch: String,
}

/// The PyTorch releases, oldest first.
pub(super) struct Pythons {
    pub(super) all: Vec<Python>,
}

impl Pythons {
    pub(super) fn find(paths: &[PathBuf], venvs: Option<&Path>) -> Result<Self> {
        let mut paths = paths.to_vec();
        if let Some(venvs) = venvs {
            let entries = std::fs::read_dir(venvs)
                .with_context(|| format!("cannot list {}", venvs.display()))?;
            let pythons = entries.flatten().map(|e| e.path().join("bin").join("python"));
            paths.extend(pythons.filter(|python| python.exists()));
        }
        let mut all = Vec::new();
        for path in paths {
            let ask = "import importlib.metadata as m; print(m.version('torch'))";
            let version = shell::output(&mut shell::command(&path, &["-c", ask]))?;
            let torch = version.trim().split('+').next().unwrap_or_default().to_owned();
            all.push(Python { path, torch });
        }
        ensure!(!all.is_empty(), "give Pythons with --python or --venvs");
        let number = |torch: &str| -> Vec<u32> {
            torch.split('.').map(|part| part.parse().unwrap_or(0)).collect()
        };
        all.sort_by_key(|python| number(&python.torch));
        Ok(Self { all })
    }
}

/// Where and with what is recorded.
pub(super) struct Bench {
    pub(super) program: PathBuf,
    pub(super) recordings: PathBuf,
    pub(super) again: bool,
}

/// The recordings of one release and setting.
pub(super) struct Recorded {
    pub(super) directory: PathBuf,
    pub(super) programs: Vec<String>,
}

impl Recorded {
    pub(super) fn snapshot(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.snapshot.pickle.gz"))
    }

    pub(super) fn stats(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.stats.json.gz"))
    }
}

impl Bench {
    /// Records what is not there yet. A program that fails leaves no recording.
    pub(super) fn record(&self, python: &Python, setting: &Setting) -> Result<Recorded> {
        let script = shell::root().join(PROGRAMS);
        let mut list = shell::command(&python.path, &[]);
        let list = shell::output(list.arg(&script).arg("--list"))?;
        let programs: Vec<String> = list.lines().map(str::to_owned).collect();
        let directory = self.recordings.join(&python.torch).join(setting.name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let recorded = Recorded { directory, programs };
        let missing = |program: &&String| self.again || !recorded.snapshot(program).exists();
        let missing: Vec<&String> = recorded.programs.iter().filter(missing).collect();
        if missing.is_empty() {
            return Ok(recorded);
        }
        for program in &missing {
            // What is left of an earlier run must not pass for a new recording.
            let _ = std::fs::remove_file(recorded.snapshot(program));
        }
        let room = self.recordings.join(format!("room-{}-{}", python.torch, setting.name));
        let options =
            ["rehearse", "--gpu", "h200", "--memory", MEMORY, "--values", "off", "-q", "-f"];
        let mut command = shell::command(&self.program, &options);
        command.args(["--conf", setting.conf, "-o"]).arg(&room).arg("--");
        command.arg(&python.path).arg(&script).arg(&recorded.directory).args(missing);
        let output = command.output().context("cannot run vramwise rehearse")?;
        let log = [output.stdout, output.stderr].concat();
        std::fs::write(recorded.directory.join("log"), log).context("cannot write the log")?;
        // The recordings are elsewhere; the rehearsal's own are the same with stacks.
        let _ = std::fs::remove_dir_all(&room);
        Ok(recorded)
    }
}

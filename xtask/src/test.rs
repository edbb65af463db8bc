//! `cargo xtask test`: everything that a fresh machine needs to run all tests.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::metadata::Metadata;
use crate::shell;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Only the Rust tests, even where Python tests exist.
    #[arg(long)]
    rust_only: bool,
    /// Install the packages that open converted files, and test with them too.
    #[arg(long)]
    tools: bool,
}

/// Where the tests that need Python lie.
const PYTHON_TESTS: &str = "tests/python";

/// Runs unit and integration tests, documentation tests, then the Python tests if there are any.
pub(crate) fn run(args: &Args) -> Result<()> {
    if shell::succeeds(&mut shell::cargo(&["nextest", "--version"])) {
        shell::run(&mut shell::cargo(&["nextest", "run", "--workspace", "--no-tests=pass"]))?;
    } else {
        shell::say("cargo-nextest is not installed; using `cargo test`.");
        let targets = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
        shell::run(&mut shell::cargo(&targets))?;
    }
    shell::run(&mut shell::cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]))?;
    let tests = shell::root().join(PYTHON_TESTS);
    if !args.rust_only && tests.is_dir() {
        python(&tests, args.tools)?;
    }
    Ok(())
}

/// Runs the Python tests in a virtual environment of their own, so that nothing that a user has
/// installed matters; it is made on first use.
fn python(tests: &Path, tools: bool) -> Result<()> {
    let python = shell::root().join(".venv").join("bin").join("python");
    let requirements = tests.join("requirements.txt");
    if !shell::succeeds(&mut shell::command(&python, &["-c", "import unittest"])) {
        let system = system_python().context("the Python tests need Python 3.10 or later")?;
        let pip: &[&str] = if requirements.exists() { &[] } else { &["--without-pip"] };
        let mut venv = shell::command(system, &["-m", "venv"]);
        shell::run(venv.args(pip).arg(".venv"))?;
    }
    if requirements.exists() {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        shell::run(shell::command(&python, &pip).arg(&requirements))?;
    }
    if tools {
        // The environment was made without pip.
        shell::run(&mut shell::command(&python, &["-m", "ensurepip", "--default-pip"]))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        shell::run(shell::command(&python, &pip).arg(tests.join("requirements-tools.txt")))?;
    }
    // The tests drive the program and the emulated device, which must be those of this source.
    shell::run(&mut shell::cargo(&["build", "--package", "vramwise-cli"]))?;
    let built = Metadata::load()?.target_directory.join("debug");
    let discover = ["-m", "unittest", "discover", "--start-directory"];
    let mut command = shell::command(&python, &discover);
    command.arg(tests).env("VRAMWISE_BIN", built.join("vramwise"));
    if cfg!(target_os = "linux") {
        let device = ["build", "--package", "vramwise-emulator", "--package", "vramwise-nvrtc"];
        shell::run(&mut shell::cargo(&device))?;
        command.env("VRAMWISE_LIB_DIR", built);
    }
    shell::run(&mut command)
}

/// The first Python on the search path that is recent enough.
fn system_python() -> Option<&'static str> {
    let recent = "import sys, venv; sys.exit(sys.version_info < (3, 10))";
    ["python3", "python"]
        .into_iter()
        .find(|python| shell::succeeds(&mut shell::command(python, &["-c", recent])))
}

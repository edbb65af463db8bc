//! `cargo xtask python`: the Python package as a user gets it, checked and tested.

use std::path::Path;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::{python_env, shell, wheel};

/// Options of `cargo xtask python`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install the packages that open converted files and take tables, and test with them too.
    #[arg(long)]
    pub(crate) tools: bool,
}

/// Where the tests lie.
const TESTS: &str = "tests/python";

/// Checks style and types, installs the wheel into the environment of the tests, and runs them there. What is tested
/// is the installed package, not the files beside the tests.
pub(crate) fn test(tools: bool) -> Result<()> {
    let tests = shell::root().join(TESTS);
    let python = python_env::ensure(&shell::root().join(".venv"))?;
    requirements(&python, &tests.join("requirements.txt"))?;
    if tools {
        requirements(&python, &tests.join("requirements-tools.txt"))?;
    }
    let ruff = |args: &[&str]| shell::run(shell::command(&python, &["-m", "ruff"]).args(args));
    ruff(&["check", "--no-cache", "python", TESTS, "examples"])?;
    ruff(&["format", "--no-cache", "--check", "python", "examples"])?;
    let cache = Metadata::load()?.target_directory.join("mypy");
    shell::run(shell::command(&python, &["-m", "mypy", "--cache-dir"]).arg(cache))?;
    // The tests drive the program and the emulated device, which must be those of this source.
    let wheel = wheel::build("dev", None)?;
    wheel::install(&wheel, &python)?;
    // What the types of the native part are said to be, against what they are.
    shell::run(&mut shell::command(&python, &["-m", "mypy.stubtest", "vramwise._native"]))?;
    let built = Metadata::load()?.target_directory.join("debug");
    let mut pytest = shell::command(&python, &["-m", "pytest", "--quiet", TESTS]);
    pytest.env("VRAMWISE_BIN", built.join("vramwise")).env("VRAMWISE_WHEEL", wheel);
    if cfg!(target_os = "linux") {
        pytest.env("VRAMWISE_LIB_DIR", built);
    }
    shell::run(&mut pytest)
}

fn requirements(python: &Path, file: &Path) -> Result<()> {
    shell::run(python_env::pip(python, &["install", "-r"])?.arg(file))
}

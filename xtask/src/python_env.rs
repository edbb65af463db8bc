//! Virtual environments that the tasks make for themselves, so that nothing that a user has installed matters.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::shell;

/// The first Python on the search path that is recent enough.
pub(crate) fn system_python() -> Result<&'static str> {
    let recent = "import sys, venv; sys.exit(sys.version_info < (3, 10))";
    ["python3", "python"]
        .into_iter()
        .find(|python| shell::succeeds(&mut shell::command(python, &["-c", recent])))
        .context("this needs Python 3.10 or later")
}

/// The Python of an environment.
pub(crate) fn python_of(environment: &Path) -> PathBuf {
    environment.join("bin").join("python")
}

/// The Python of the environment at `path`, which is made where it is missing.
pub(crate) fn ensure(path: &Path) -> Result<PathBuf> {
    let python = python_of(path);
    if !shell::succeeds(&mut shell::command(&python, &["-c", "import unittest"])) {
        let system = system_python()?;
        shell::run(shell::command(system, &["-m", "venv"]).arg(path))?;
    }
    Ok(python)
}

/// `pip` of an environment. One that was made without it gets it first.
pub(crate) fn pip(python: &Path, args: &[&str]) -> Result<std::process::Command> {
    if !shell::succeeds(&mut shell::command(python, &["-c", "import pip"])) {
        shell::run(&mut shell::command(python, &["-m", "ensurepip", "--default-pip"]))?;
    }
    let mut command =
        shell::command(python, &["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    command.args(args);
    Ok(command)
}

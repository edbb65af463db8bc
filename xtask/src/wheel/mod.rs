//! `cargo xtask wheel`: the Python package as a wheel, with the program and the libraries that it needs inside.

mod check;
mod glibc;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::metadata::Metadata;
use crate::{python_env, shell};

/// Options of `cargo xtask wheel`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Profile to build with: release for what is published, quick to try things out, dev as the tests have it.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Where the wheel goes; without it, `wheels` in cargo's target directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also install it into this virtual environment.
    #[arg(long, value_name = "VENV")]
    into: Option<PathBuf>,
}

/// The profile of what is published.
const PUBLISHED: &str = "release";

/// The release of maturin that builds it.
const MATURIN: &str = "maturin>=1.9,<2";

/// Builds, checks, and installs where that is asked.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wheel = build(&args.profile, args.out.as_deref())?;
    if let Some(environment) = &args.into {
        install(&wheel, &python_env::python_of(environment))?;
    }
    shell::say(&format!("\n{}", wheel.display()));
    Ok(())
}

/// Builds the wheel and looks at what came out.
pub(crate) fn build(profile: &str, out: Option<&Path>) -> Result<PathBuf> {
    let target = Metadata::load()?.target_directory;
    let out = out.map_or_else(|| target.join("wheels"), Path::to_owned);
    let staged = stage::stage(profile, &target)?;
    let maturin = maturin(&target)?;
    // One wheel at a time: what is found afterwards is the one that was built.
    let fresh = out.join(".new");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).with_context(|| format!("cannot make {}", fresh.display()))?;
    let mut build = shell::command(&maturin, &["build", "--profile", profile]);
    if profile != PUBLISHED {
        // Only what is published must run on older systems than this one.
        build.args(["--compatibility", "linux"]);
    }
    shell::run(slim(&mut build, profile).arg("--out").arg(&fresh))?;
    let built = only_file(&fresh)?;
    let wheel = out.join(built.file_name().context("a wheel has a name")?);
    fs::rename(&built, &wheel).context("cannot move the wheel")?;
    fs::remove_dir(&fresh).context("cannot remove an empty directory")?;
    check::check(&wheel)?;
    glibc::check(&wheel, &staged)?;
    Ok(wheel)
}

/// Leaves out what only a debugger reads, where size matters. Other profiles keep it, so that they share what is built
/// with everything else.
fn slim<'a>(build: &'a mut Command, profile: &str) -> &'a mut Command {
    if profile == PUBLISHED {
        build
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    }
    build
}

/// Puts a wheel into an environment, in the place of any other build of it.
pub(crate) fn install(wheel: &Path, python: &Path) -> Result<()> {
    let mut pip = python_env::pip(python, &["install", "--force-reinstall", "--no-deps"])?;
    shell::run(pip.arg(wheel))
}

/// maturin, in an environment of its own.
fn maturin(target: &Path) -> Result<PathBuf> {
    let environment = target.join("maturin");
    let program = environment.join("bin").join("maturin");
    if !shell::succeeds(&mut shell::command(&program, &["--version"])) {
        let python = python_env::ensure(&environment)?;
        shell::run(&mut python_env::pip(&python, &["install", MATURIN])?)?;
    }
    Ok(program)
}

fn only_file(directory: &Path) -> Result<PathBuf> {
    let files: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    ensure!(files.len() == 1, "maturin wrote {} files, not one wheel", files.len());
    Ok(files[0].clone())
}

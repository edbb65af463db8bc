//! What goes into the wheel beside Python's own: built, and put where maturin takes it from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::metadata::Metadata;
use crate::shell;

/// Shared objects of the package, and the crates that they are made from.
const LIBRARIES: &[(&str, &str)] = &[
    ("vramwise-emulator", "libvramwise_emulator.so"),
    ("vramwise-nvrtc", "libvramwise_nvrtc.so"),
    ("vramwise-allocator", "libvramwise_allocator.so"),
    ("vramwise-probe", "libvramwise_probe.so"),
];

/// Builds the program and the libraries and copies them to the paths that it returns; what an earlier build left is removed.
pub(super) fn stage(profile: &str, target: &Path) -> Result<Vec<PathBuf>> {
    let metadata = Metadata::load()?;
    let libraries: Vec<_> = LIBRARIES
        .iter()
        .filter(|(package, _)| metadata.members().iter().any(|m| m.name == *package))
        .collect();
    // With the features of what it depends on as the extension module has them: so both share what is built.
    let mut program = shell::cargo(&["build", "--profile", profile, "--bin", "vramwise"]);
    program.args(["--package", "vramwise-cli", "--package", "vramwise-python"]);
    shell::run(super::slim(&mut program, profile))?;
    if cfg!(target_os = "linux") {
        let mut build = shell::cargo(&["build", "--profile", profile]);
        build.args(libraries.iter().flat_map(|(package, _)| ["--package", *package]));
        shell::run(super::slim(&mut build, profile))?;
    }
    // The directory of the profile `dev` has another name.
    let built = target.join(if profile == "dev" { "debug" } else { profile });
    let package = shell::root().join("python");
    let scripts = empty(package.join("vramwise.data").join("scripts"))?;
    let mut staged = vec![scripts.join("vramwise")];
    copy(&built.join("vramwise"), &staged[0])?;
    let lib = empty(package.join("vramwise").join("lib"))?;
    if cfg!(target_os = "linux") {
        for (_, name) in libraries {
            staged.push(lib.join(name));
            copy(&built.join(name), &lib.join(name))?;
        }
    }
    Ok(staged)
}

fn empty(directory: PathBuf) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

//! What a program's Python finds at its start: a directory with a start-up file and the parts of the package vramwise
//! that the allocator needs, for a Python that does not have the package.
//!
//! It lies in the user's cache directory, under a name that its content decides, and stays there: processes that the
//! program starts later need it too.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The engine's library.
const LIBRARY: &str = "libvramwise_allocator.so";

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("package/vramwise/", $name), include_str!(concat!("../../../../../python/vramwise/", $name)))),*]
    };
}

/// The start-up file.
const START: (&str, &str) = ("sitecustomize.py", include_str!("../../../python/sitecustomize.py"));

/// The package's files.
const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "errors.py",
    "allocator/__init__.py",
    "allocator/_compiler.py",
    "allocator/_engine.py",
    "allocator/_install.py",
    "allocator/_report.py",
    "allocator/_shim.py",
    "allocator/autoload.py",
    "allocator/shim/allocator.h",
    "allocator/shim/checkpoint.h",
    "allocator/shim/engine.h",
    "allocator/shim/history.h",
    "allocator/shim/install.h",
    "allocator/shim/ipc.h",
    "allocator/shim/open_pools.h",
    "allocator/shim/out_of_memory.h",
    "allocator/shim/ring.h",
    "allocator/shim/shim.cpp",
    "allocator/shim/snapshot.h",
    "allocator/shim/statistics.h",
    "allocator/shim/switches.h",
    "allocator/shim/torch.h",
    "allocator/shim/torchs_own.h",
    "allocator/shim/vramwise_engine.h",
    "allocator/shim/walk.h",
];

/// Makes the directory if it is not there yet.
pub(super) fn prepare() -> Result<PathBuf, Failure> {
    let library = library();
    let mut key = DefaultHasher::new();
    (START, PACKAGE, &library).hash(&mut key);
    let cache = cache()?;
    let directory = cache.join(format!("run-{:016x}", key.finish()));
    if directory.join(START.0).is_file() {
        return Ok(directory);
    }
    let half = cache.join(format!("run-{:016x}.{}.tmp", key.finish(), std::process::id()));
    let _ = fs::remove_dir_all(&half);
    let written = write(&half, library.as_deref());
    // Another process may have been quicker; its directory has the same content.
    let moved = written.and_then(|()| match fs::rename(&half, &directory) {
        Err(_) if directory.join(START.0).is_file() => Ok(()),
        other => other,
    });
    let _ = fs::remove_dir_all(&half);
    moved.map_err(|error| Failure::io("write", &directory, &error))?;
    Ok(directory)
}

fn write(directory: &Path, library: Option<&Path>) -> std::io::Result<()> {
    for (name, text) in PACKAGE.iter().chain([&START]) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(path, text)?;
    }
    if let Some(library) = library {
        let place = directory.join("package/vramwise/lib");
        fs::create_dir_all(&place)?;
        link(library, &place.join(LIBRARY))?;
    }
    Ok(())
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(not(unix))]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to).map(|_| ())
}

/// The engine's library beside this program, or where packages put libraries. Without it the Python side looks in the
/// package that it finds, and says so if there is none.
fn library() -> Option<PathBuf> {
    let places = vramwise_rehearse::library_places();
    places.iter().find_map(|place| fs::canonicalize(place.join(LIBRARY)).ok())
}

/// `VRAMWISE_CACHE_DIR`, or `vramwise` in the user's cache directory.
fn cache() -> Result<PathBuf, Failure> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("VRAMWISE_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|home| home.join("vramwise")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/vramwise")))
        .ok_or_else(|| {
            Failure::new("there is no directory for files of its own")
                .hint("set VRAMWISE_CACHE_DIR")
        })?;
    let fail = |error| {
        Failure::io("make", &directory, &error).hint("VRAMWISE_CACHE_DIR names another directory")
    };
    make(&directory).map_err(fail)?;
    let directory = fs::canonicalize(&directory).map_err(fail)?;
    if others_may_write(&directory) {
        return Err(Failure::new(format!(
            "{} can be written by others, and programs would run what they put there",
            directory.display()
        ))
        .hint("chmod go-w it, or name another directory in VRAMWISE_CACHE_DIR"));
    }
    Ok(directory)
}

#[cfg(unix)]
fn make(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)
}

#[cfg(unix)]
fn others_may_write(directory: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(directory).is_ok_and(|facts| facts.permissions().mode() & 0o022 != 0)
}

#[cfg(not(unix))]
fn others_may_write(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, found: &mut Vec<String>, prefix: &str) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                files(&entry.path(), found, &format!("{name}/"));
            } else if [".py", ".h", ".cpp"].iter().any(|end| name.ends_with(end)) {
                found.push(name);
            }
        }
    }

    #[test]
    fn every_file_that_the_allocator_needs_is_given_to_the_program() {
        let mut there = Vec::new();
        let allocator =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/vramwise/allocator");
        files(&allocator, &mut there, "package/vramwise/allocator/");
        // Only people call this one.
        there.retain(|name| !name.ends_with("__main__.py"));
        there.sort();
        let given: Vec<_> = PACKAGE.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, given[2..]);
    }
}

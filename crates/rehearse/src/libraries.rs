//! The shared objects of the emulated device: where they lie, and under which names a program finds them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::RehearsalError;

/// The device: driver, runtime and libraries.
const EMULATOR: &str = "libvramwise_emulator.so";
/// The run-time compiler, which other libraries load by its own name.
const NVRTC: &str = "libvramwise_nvrtc.so";
/// What stands between PyTorch and cuDNN while a card is measured.
const PROBE: &str = "libvramwise_probe.so";
/// The directory that has them; no other is looked into then.
pub(crate) const VARIABLE: &str = "VRAMWISE_LIB_DIR";

/// Both files.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    emulator: PathBuf,
    nvrtc: PathBuf,
    places: Vec<PathBuf>,
}

impl Libraries {
    /// Looks for them.
    pub(crate) fn find() -> Result<Self, RehearsalError> {
        let places = library_places();
        let find = |name: &'static str| {
            let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
            let found = found.and_then(|path| fs::canonicalize(path).ok());
            found.ok_or_else(|| RehearsalError::NoEmulator { name, places: places.clone() })
        };
        Ok(Self { emulator: find(EMULATOR)?, nvrtc: find(NVRTC)?, places: places.clone() })
    }

    /// The table of cuDNN's workspaces on a card, `ID.workspaces`, where one lies beside the libraries.
    pub(crate) fn workspaces(&self, card: &str) -> Option<PathBuf> {
        let name = format!("{card}.workspaces");
        let found = self.places.iter().map(|place| place.join(&name)).find(|path| path.is_file());
        found.and_then(|path| fs::canonicalize(path).ok())
    }

    /// Puts them into a directory under the names of what they stand for, and returns those to preload.
    pub(crate) fn install(
        &self,
        directory: &Path,
        cuda_major: u32,
    ) -> Result<Vec<PathBuf>, RehearsalError> {
        for name in ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"] {
            link(&self.emulator, &directory.join(name))?;
        }
        let nvrtc = directory.join(format!("libnvrtc.so.{cuda_major}"));
        if cuda_major == 13 {
            link(&self.nvrtc, &nvrtc)?;
        } else {
            // The object's own name must be the one that is asked for; both have the same length.
            let bytes = fs::read(&self.nvrtc)
                .map_err(|error| RehearsalError::io("read", &self.nvrtc, error))?;
            let own = format!("libnvrtc.so.{cuda_major}");
            let renamed = replace(&bytes, b"libnvrtc.so.13\0", format!("{own}\0").as_bytes());
            fs::write(&nvrtc, renamed)
                .map_err(|error| RehearsalError::io("write", &nvrtc, error))?;
        }
        Ok(vec![directory.join("libcuda.so.1"), nvrtc])
    }
}

/// The object that watches cuDNN.
pub(crate) fn probe() -> Result<PathBuf, RehearsalError> {
    let places = library_places();
    let found = places.iter().map(|place| place.join(PROBE)).find(|path| path.is_file());
    let found = found.and_then(|path| fs::canonicalize(path).ok());
    found.ok_or(RehearsalError::NoProbe { name: PROBE, places })
}

/// Where the shared objects that belong to this program may lie: the directory that VRAMWISE_LIB_DIR names, or else beside the
/// program and where packages put libraries.
pub fn library_places() -> Vec<PathBuf> {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return vec![PathBuf::from(directory)];
    }
    let program = std::env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    let Some(beside) = program.parent() else { return Vec::new() };
    let mut places = vec![beside.to_owned(), beside.join("../lib/vramwise"), beside.join("deps")];
    places.extend(of_packages(beside));
    places
}

/// Where the Python package has the libraries, for a program that was installed with it: in the `bin` of an
/// environment, of a system, or beside the packages of `pip install --target`.
fn of_packages(bin: &Path) -> Vec<PathBuf> {
    let prefix = bin.join("..");
    let mut places = vec![prefix.join("vramwise/lib")];
    for lib in ["lib", "lib64"] {
        let found = fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        let named = found.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"python3"));
        let mut pythons: Vec<PathBuf> = named.map(|e| e.path()).collect();
        pythons.sort();
        for python in pythons {
            // Debian's own Python calls it otherwise.
            for packages in ["site-packages", "dist-packages"] {
                places.push(python.join(packages).join("vramwise/lib"));
            }
        }
    }
    places
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> Result<(), RehearsalError> {
    std::os::unix::fs::symlink(from, to).map_err(|error| RehearsalError::io("make", to, error))
}

#[cfg(not(unix))]
fn link(from: &Path, to: &Path) -> Result<(), RehearsalError> {
    fs::copy(from, to).map(|_| ()).map_err(|error| RehearsalError::io("make", to, error))
}

/// `bytes` with every occurrence of `old` replaced by `new`, which is as long.
fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    debug_assert_eq!(old.len(), new.len());
    let mut result = bytes.to_vec();
    let mut at = 0;
    while let Some(offset) = result[at..].windows(old.len()).position(|window| window == old) {
        at += offset;
        result[at..at + new.len()].copy_from_slice(new);
        at += new.len();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_an_environment_is_looked_into() {
        let prefix = std::env::temp_dir().join(format!("vramwise-places-{}", std::process::id()));
        let packages = prefix.join("lib/python3.11/site-packages");
        fs::create_dir_all(&packages).unwrap();
        fs::create_dir_all(prefix.join("lib/perl5")).unwrap();
        fs::create_dir_all(prefix.join("bin")).unwrap();
        let places = of_packages(&prefix.join("bin"));
        let expected = prefix.join("bin/../lib/python3.11/site-packages/vramwise/lib");
        assert!(places.contains(&expected), "{places:?}");
        assert!(places.iter().all(|place| place.ends_with("vramwise/lib")), "{places:?}");
        assert!(!places.iter().any(|place| place.to_string_lossy().contains("perl")), "{places:?}");
        fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn a_name_is_replaced_wherever_it_stands() {
        let text = b"libnvrtc.so.13\0 x libnvrtc.so.13\0libnvrtc.so.134";
        let renamed = replace(text, b"libnvrtc.so.13\0", b"libnvrtc.so.12\0");
        assert_eq!(renamed, b"libnvrtc.so.12\0 x libnvrtc.so.12\0libnvrtc.so.134");
    }
}

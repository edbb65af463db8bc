//! An empty directory for one test, and the program to run in it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed with the test.
pub(crate) struct Room(PathBuf);

impl Room {
    /// A new empty directory; `name` must be the test's own.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file in the directory.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// What a file in the directory holds.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }

    /// The names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// `vramwise ARGS`, to be run in the directory.
    pub(crate) fn vramwise(&self, args: &[&str]) -> Command {
        let mut command = vramwise(args);
        command.current_dir(&self.0);
        command
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `vramwise ARGS` in surroundings that are the same everywhere.
pub(crate) fn vramwise(args: &[&str]) -> Command {
    let mut command = Command::new(insta_cmd::get_cargo_bin("vramwise"));
    command.args(args).env_remove("NO_COLOR").env("COLUMNS", "100");
    command
}

/// The root of the repository, where `testdata` lies.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

//! Files that a command writes: never over an existing one without `--force`, and never half.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file that will be written; checked before the work that leads to it, so that an hour of work
/// is not lost to a name that is taken.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    force: bool,
}

impl Destination {
    /// Takes `path` as the place to write to.
    pub(crate) fn new(path: &Path, force: bool) -> Result<Self, Failure> {
        let destination = Self { path: path.to_owned(), force };
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                Err(Failure::new(format!("{} is a directory", path.display()))
                    .hint("name a file to write"))
            }
            Ok(found) if found.is_file() && !force => Err(destination.taken()),
            _ => Ok(destination),
        }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if this is one of the files that the command reads.
    pub(crate) fn distinct_from<'a>(
        &self,
        inputs: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Failure> {
        let Ok(own) = fs::canonicalize(&self.path) else { return Ok(()) };
        for input in inputs {
            if fs::canonicalize(input).is_ok_and(|input| input == own) {
                let what = format!("{} is an input; it will not be overwritten", input.display());
                return Err(Failure::new(what).hint("choose another name for the output"));
            }
        }
        Ok(())
    }

    /// Fails where a file cannot be made, before work that costs too much to be lost.
    pub(crate) fn try_to_write(&self) -> Result<(), Failure> {
        let fail = |error: io::Error| Failure::io("write", &self.path, &error);
        let mut file = OpenOptions::new();
        // A pipe or a device has no name beside it.
        if fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            return file.write(true).open(&self.path).map(drop).map_err(fail);
        }
        let temporary = Temporary::beside(&self.path).map_err(fail)?;
        file.write(true).create_new(true).open(&temporary.0).map(drop).map_err(fail)
    }

    /// Writes the whole file, or leaves what was there.
    pub(crate) fn write(&self, content: &[u8]) -> Result<(), Failure> {
        let fail = |error: io::Error| Failure::io("write", &self.path, &error);
        // A pipe or a device has no content to protect and no name to be renamed to.
        if fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            let mut file = OpenOptions::new().write(true).open(&self.path).map_err(fail)?;
            return file.write_all(content).map_err(fail);
        }
        let temporary = Temporary::beside(&self.path).map_err(fail)?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&temporary.0).map_err(fail)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(fail)?;
        drop(file);
        if !self.force {
            // Unlike a rename, a link never replaces what came into being meanwhile.
            match fs::hard_link(&temporary.0, &self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(self.taken());
                }
                // Not every file system has links.
                Err(_) if self.path.exists() => return Err(self.taken()),
                Err(_) => {}
            }
        }
        fs::rename(&temporary.0, &self.path).map_err(fail)
    }

    fn taken(&self) -> Failure {
        Failure::new(format!("{} exists already", self.path.display()))
            .hint("choose another name, or -f to overwrite it")
    }
}

/// A file beside another, removed when it is no longer needed.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("this is no file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        Ok(Self(path.with_file_name(hidden)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already after a rename.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new empty directory under the build's own.
    fn room(name: &str) -> PathBuf {
        let room = std::env::temp_dir().join(format!("vramwise-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room).unwrap();
        room
    }

    fn names(room: &Path) -> Vec<String> {
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        fs::read_dir(room).unwrap().map(name).collect()
    }

    #[test]
    fn an_existing_file_is_kept_unless_forced() {
        let room = room("force");
        let path = room.join("report.json");
        Destination::new(&path, false).unwrap().write(b"one").unwrap();
        assert!(Destination::new(&path, false).is_err());
        Destination::new(&path, true).unwrap().write(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(&room), ["report.json"]);
        fs::remove_dir_all(room).unwrap();
    }

    #[test]
    fn a_file_that_comes_into_being_meanwhile_is_kept() {
        let room = room("race");
        let path = room.join("report.json");
        let destination = Destination::new(&path, false).unwrap();
        fs::write(&path, "theirs").unwrap();
        assert!(destination.write(b"ours").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(&room), ["report.json"]);
        fs::remove_dir_all(room).unwrap();
    }

    #[test]
    fn an_input_is_never_overwritten() {
        let room = room("input");
        let path = room.join("a.pickle");
        fs::write(&path, "recording").unwrap();
        let destination = Destination::new(&path, true).unwrap();
        assert!(destination.distinct_from([room.join(".").join("a.pickle").as_path()]).is_err());
        assert!(destination.distinct_from([room.join("b.pickle").as_path()]).is_ok());
        fs::remove_dir_all(room).unwrap();
    }

    #[test]
    fn where_no_file_can_be_made_is_known_beforehand() {
        let room = room("beforehand");
        let tried = |path: &Path| Destination::new(path, false).unwrap().try_to_write();
        assert!(tried(&room.join("a")).is_ok());
        assert!(tried(&room.join("none").join("a")).is_err());
        assert_eq!(names(&room), [""; 0], "nothing is left");
        fs::remove_dir_all(room).unwrap();
    }

    #[test]
    fn a_directory_is_no_destination() {
        let room = room("directory");
        assert!(Destination::new(&room, true).is_err());
        assert!(Destination::new(&room.join("none").join("a"), true).unwrap().write(b"x").is_err());
        fs::remove_dir_all(room).unwrap();
    }
}

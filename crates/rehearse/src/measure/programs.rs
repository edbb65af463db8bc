//! The programs of Python that measure: where they lie while they run, and what they say.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child::{self, Streams};
use crate::error::RehearsalError;
use crate::room;

/// The programs, by file name.
const PROGRAMS: &[(&str, &str)] = &[
    ("device.py", include_str!("../../../probe/python/device.py")),
    ("layers.py", include_str!("../../../probe/python/layers.py")),
    ("models.py", include_str!("../../../probe/python/models.py")),
    ("sizes.py", include_str!("../../../probe/python/sizes.py")),
];

/// A directory for one measurement.
pub(super) struct Room(room::Room);

impl Room {
    pub(super) fn new() -> Result<Self, RehearsalError> {
        let room = Self(room::Room::temporary()?);
        for (name, text) in PROGRAMS {
            let path = room.path(name);
            fs::write(&path, text).map_err(|error| RehearsalError::io("write", path, error))?;
        }
        Ok(room)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn directory(&self) -> &Path {
        self.0.path()
    }

    /// Runs one of the programs; `said` gets each of its lines. Its whole output.
    pub(super) fn run(
        &self,
        python: &Path,
        name: &str,
        arguments: &[String],
        limit: Option<Duration>,
        said: &mut dyn FnMut(&str),
    ) -> Result<String, RehearsalError> {
        let log = self.path(&format!("{name}.log"));
        let file = File::create(&log).map_err(|error| RehearsalError::io("write", &log, error))?;
        let mut command = Command::new(python);
        command.arg("-u").arg(self.path(name)).args(arguments);
        command.current_dir(self.0.path()).stdin(Stdio::null());
        let mut lines = Lines { file: File::open(&log).ok(), at: 0, rest: String::new() };
        let mut watch = || lines.each(said);
        let ended = child::run_watched(command, Streams::Hidden, Some(file), limit, &mut watch)
            .map_err(|error| RehearsalError::io("run", python, error))?;
        watch();
        if ended.interrupted() {
            return Err(RehearsalError::Interrupted);
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        if ended.status == 0 || ended.timed_out {
            return Ok(text);
        }
        let why = last_line(&text);
        Err(RehearsalError::Measurement(format!(
            "{name} ended with status {}: {why}",
            ended.status
        )))
    }
}

/// The lines that are added to a file.
struct Lines {
    file: Option<File>,
    at: u64,
    rest: String,
}

impl Lines {
    fn each(&mut self, said: &mut dyn FnMut(&str)) {
        let Some(file) = &mut self.file else { return };
        let mut more = Vec::new();
        if file.seek(SeekFrom::Start(self.at)).is_err() || file.read_to_end(&mut more).is_err() {
            return;
        }
        self.at += more.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&more));
        while let Some((line, rest)) = self.rest.split_once('\n') {
            said(line.trim_end());
            self.rest = rest.to_owned();
        }
    }
}

pub(super) fn last_line(text: &str) -> String {
    text.trim().lines().last().unwrap_or("").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_handed_on_once_and_whole() {
        let path = std::env::temp_dir().join(format!("vramwise-lines-{}", std::process::id()));
        fs::write(&path, "one\ntw").unwrap();
        let mut lines = Lines { file: File::open(&path).ok(), at: 0, rest: String::new() };
        let mut seen = Vec::new();
        lines.each(&mut |line| seen.push(line.to_owned()));
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        lines.each(&mut |line| seen.push(line.to_owned()));
        fs::remove_file(path).unwrap();
        assert_eq!(seen, ["one", "two", "three"]);
    }
}

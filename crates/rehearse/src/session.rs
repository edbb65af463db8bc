//! The directory of a rehearsal: what the program finds there, and what it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::RehearsalError;
use crate::libraries::Libraries;
use crate::room::Room;

/// The variable by which the emulated device and the bootstrap find the directory.
pub(crate) const VARIABLE: &str = "VRAMWISE_REHEARSAL";
/// What is read by the emulated device and the bootstrap.
pub(crate) const CONFIG: &str = "emulator.json";

/// The bootstrap, by file name.
const PYTHON: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("../python/sitecustomize.py")),
    ("vramwise_record.py", include_str!("../python/vramwise_record.py")),
    ("vramwise_values.py", include_str!("../python/vramwise_values.py")),
    ("vramwise_layer.py", include_str!("../python/vramwise_layer.py")),
    ("vramwise_assumptions.py", include_str!("../python/vramwise_assumptions.py")),
    ("vramwise_operations.py", include_str!("../python/vramwise_operations.py")),
    ("vramwise_compile.py", include_str!("../python/vramwise_compile.py")),
    ("vramwise_counts.py", include_str!("../python/vramwise_counts.py")),
    ("vramwise_copies.py", include_str!("../python/vramwise_copies.py")),
    ("vramwise_emulator.py", include_str!("../python/vramwise_emulator.py")),
    ("vramwise_finite.py", include_str!("../python/vramwise_finite.py")),
    ("vramwise_tensors.py", include_str!("../python/vramwise_tensors.py")),
    ("vramwise_objects.py", include_str!("../python/vramwise_objects.py")),
    ("vramwise_ranks.py", include_str!("../python/vramwise_ranks.py")),
    ("vramwise_strategies.py", include_str!("../python/vramwise_strategies.py")),
];
/// The table of workspaces that comes with vramwise.
pub(crate) const WORKSPACES: &str = "workspaces.bin";
/// What is of no use when the program has ended. Code that was compiled for the pass that counts is kept:
/// stacks name its lines.
const SCAFFOLD: [&str; 4] = ["lib", "python", "cache/torchinductor_1", "cache/triton"];

/// A prepared directory.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) directory: PathBuf,
    pub(crate) room: Arc<Room>,
    /// The objects to preload.
    pub(crate) preload: Vec<PathBuf>,
    /// The table of cuDNN's workspaces.
    pub(crate) workspaces: Option<PathBuf>,
}

impl Session {
    /// Prepares `directory`, or a new one among the temporary files.
    pub(crate) fn new(
        directory: Option<&Path>,
        replace: bool,
        libraries: &Libraries,
        cuda_major: u32,
    ) -> Result<Self, RehearsalError> {
        let room = match directory {
            Some(given) => {
                let fail = |error| RehearsalError::io("make", given, error);
                fs::create_dir_all(given).map_err(fail)?;
                clear(given, replace)?;
                Room::given(fs::canonicalize(given).map_err(fail)?)
            }
            None => Room::temporary()?,
        };
        let session = Self::in_room(room);
        session.make("lib")?;
        session.make("python")?;
        for (name, text) in PYTHON {
            session.write(&format!("python/{name}"), text.as_bytes())?;
        }
        let preload = libraries.install(&session.directory.join("lib"), cuda_major)?;
        Ok(Self { preload, ..session })
    }

    fn in_room(room: Room) -> Self {
        let directory = room.path().to_owned();
        Self { directory, room: Arc::new(room), preload: Vec::new(), workspaces: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn make(&self, name: &str) -> Result<(), RehearsalError> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|error| RehearsalError::io("make", path, error))
    }

    /// Writes a file, whole or not at all.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), RehearsalError> {
        let path = self.path(name);
        let half = self.path(&format!("{name}.tmp"));
        fs::write(&half, content)
            .and_then(|()| fs::rename(&half, &path))
            .map_err(|error| RehearsalError::io("write", path, error))
    }

    /// Puts what the first pass left aside, so that only the second one's reports are found.
    pub(crate) fn set_aside(&self) -> Result<(), RehearsalError> {
        self.make("pass1")?;
        for (name, path) in entries(&self.directory) {
            if name.starts_with("device.") || name.starts_with("values.") && name.ends_with(".json")
            {
                let aside = self.path("pass1").join(&name);
                fs::rename(&path, &aside)
                    .map_err(|error| RehearsalError::io("move", path, error))?;
            }
        }
        Ok(())
    }

    /// Copies a log of values that an earlier rehearsal wrote, and those of its other processes beside it: for
    /// `values.jsonl` these are `values.NAME.jsonl`.
    pub(crate) fn bring_values(&self, file: &Path, log: &Path) -> Result<(), RehearsalError> {
        let copy = |from: &Path, to: &Path| {
            let copied = fs::copy(from, to);
            copied.map(|_| ()).map_err(|error| RehearsalError::io("read", from, error))
        };
        let (lines, mut complaints) =
            vramwise_values::read(file).map_err(|error| RehearsalError::io("read", file, error))?;
        // A program that read nothing has an empty log.
        if lines.is_empty() && !complaints.is_empty() {
            let complaint = complaints.swap_remove(0);
            return Err(RehearsalError::NoValues { path: file.to_owned(), complaint });
        }
        copy(file, log)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned() + ".";
        let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        for (name, path) in entries(beside.unwrap_or(Path::new("."))) {
            let process = name.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(".jsonl"));
            if let Some(process) = process {
                copy(&path, &log.with_extension(format!("{process}.jsonl")))?;
            }
        }
        Ok(())
    }

    /// Whether several processes that nothing tells apart read values: their logs are counted.
    pub(crate) fn has_counted_logs(&self) -> bool {
        entries(&self.directory).iter().any(|(name, _)| {
            let inner = name.strip_prefix("values.").and_then(|rest| rest.strip_suffix(".jsonl"));
            let last = inner.and_then(|inner| inner.rsplit('.').next());
            last.is_some_and(|last| !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
        })
    }

    /// Removes the libraries, the bootstrap, the caches and the table of workspaces.
    pub(crate) fn tidy(&self) {
        for (name, path) in entries(&self.directory) {
            let claimed = name.starts_with("values.")
                && (name.ends_with(".learn") || name.ends_with(".taken"));
            if claimed || name == WORKSPACES {
                // What cannot be removed does no harm.
                let _ = fs::remove_file(path);
            }
        }
        for name in SCAFFOLD {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir_all(self.path(name));
        }
        // Only where nothing is left in it.
        let _ = fs::remove_dir(self.path("cache"));
    }
}

/// Names and paths in a directory, by name.
pub(crate) fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    found.sort();
    found
}

/// Makes room for a rehearsal: only an older one is ever removed.
fn clear(directory: &Path, replace: bool) -> Result<(), RehearsalError> {
    let found = entries(directory);
    if found.is_empty() {
        return Ok(());
    }
    if !replace || !directory.join(CONFIG).is_file() {
        return Err(RehearsalError::Occupied(directory.to_owned()));
    }
    for (name, path) in found {
        let ours = ["lib", "python", "cache", "pass1", "pass1.log", "pass2.log", CONFIG]
            .contains(&name.as_str())
            || name == "report.json"
            || ["device.", "torch.", "snapshot.", "values.", "bootstrap.", "workspaces.", "draw-"]
                .iter()
                .any(|start| name.starts_with(start));
        if ours {
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| RehearsalError::io("remove", path, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_of_our_own_lines_is_taken_for_the_programs() {
        for (name, _) in PYTHON.iter().filter(|(name, _)| name.starts_with("vramwise_")) {
            let file = format!("/tmp/room/python/{name}");
            assert!(vramwise_analyze::peak::is_framework(&file), "{file}");
        }
    }

    #[test]
    fn a_log_of_values_brings_those_of_the_other_processes() {
        let room = Room::temporary().unwrap();
        let old = room.path().join("old");
        let session = Session::in_room(Room::given(room.path().join("new")));
        fs::create_dir(&old).unwrap();
        fs::create_dir(&session.directory).unwrap();
        for name in ["mine.jsonl", "mine.rank-1.jsonl", "mine.json", "mine2.jsonl"] {
            fs::write(old.join(name), "{\"n\":0,\"bytes\":0,\"hex\":\"\"}\n").unwrap();
        }
        let log = session.path("values.jsonl");
        session.bring_values(&old.join("mine.jsonl"), &log).unwrap();
        let names: Vec<String> = entries(&session.directory).into_iter().map(|e| e.0).collect();
        assert_eq!(names, ["values.jsonl", "values.rank-1.jsonl"]);
        assert!(!session.has_counted_logs());
        fs::write(old.join("binary"), b"PK\x03\x04\n\x00").unwrap();
        let refused = session.bring_values(&old.join("binary"), &log).unwrap_err().to_string();
        assert!(
            refused.contains("binary is no log of values") && refused.contains("line 1"),
            "{refused}"
        );
        fs::write(session.path("values.rank-1.2.jsonl"), "").unwrap();
        assert!(session.has_counted_logs());
    }
}

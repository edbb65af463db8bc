//! Whose log of values is whose: a program may have several processes, and those of both passes must find the same.
//!
//! The first process has the rehearsal's own log (`values.jsonl`), one that was told a name (its rank, its place among
//! the children of another) `values.NAME.jsonl`. Processes that nothing tells apart are counted in the order in which
//! they first read a value: `values.2.jsonl`, `values.NAME.2.jsonl`.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// More processes than that under one name are no rehearsal.
const MOST: u32 = 4096;

/// The log of a process; each is given out once a pass. A file `….learn` or `….taken` beside it keeps it taken.
///
/// # Errors
/// A sentence, where that file cannot be made.
pub fn claim(base: &Path, process: &str, learns: bool) -> Result<PathBuf, String> {
    let pass = if learns { "learn" } else { "taken" };
    for count in 1..=MOST {
        let path = name(base, process, count);
        let mark = path.with_extension(pass);
        match OpenOptions::new().write(true).create_new(true).open(&mark) {
            Ok(_) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(format!("{}: {e}", mark.display())),
        }
    }
    Err(format!("{}: more than {MOST} processes read values", base.display()))
}

fn name(base: &Path, process: &str, count: u32) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut middle: String = process.chars().map(plain).collect();
    if count > 1 {
        middle += &format!("{}{count}", if middle.is_empty() { "" } else { "." });
    }
    if middle.is_empty() { base.to_owned() } else { base.with_extension(format!("{middle}.jsonl")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_log_of_its_own_and_finds_it_again() {
        let room = std::env::temp_dir().join(format!("vramwise-logs-{}", std::process::id()));
        std::fs::create_dir_all(&room).unwrap();
        let base = room.join("values.jsonl");
        let claim = |process: &str, learns| {
            let path = claim(&base, process, learns).unwrap();
            path.file_name().unwrap().to_string_lossy().into_owned()
        };
        for learns in [true, false] {
            assert_eq!(claim("", learns), "values.jsonl");
            assert_eq!(claim("rank-1", learns), "values.rank-1.jsonl");
            assert_eq!(claim("", learns), "values.2.jsonl");
            assert_eq!(claim("rank-1", learns), "values.rank-1.2.jsonl");
            assert_eq!(claim("a/../b", learns), "values.a____b.jsonl");
        }
        std::fs::remove_dir_all(room).unwrap();
    }
}

//! The snapshot files of a directory, one for each rank.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Endings of names that are taken for snapshots, also with a compression's ending behind.
const ENDINGS: [&str; 5] = ["pickle", "pkl", "json", "html", "memory_snapshot"];

/// Folders within folders that are looked into: frameworks put each step's files into one of its own.
const DEPTH: usize = 4;

/// Endings of names that are taken for logs, also with a compression's ending behind.
const LOG_ENDINGS: [&str; 5] = ["log", "txt", "out", "err", "stderr"];

/// The snapshot files in a directory in natural order, so that rank 10 follows rank 9. Of anything that
/// is no directory, the path itself. Directories inside and hidden files are left out.
///
/// # Errors
/// Where the directory cannot be read.
pub fn list_inputs(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    list(path.as_ref(), is_snapshot_name)
}

/// The same for snapshots and logs together.
///
/// # Errors
/// Where the directory cannot be read.
pub fn list_logs(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    list(path.as_ref(), is_log_or_snapshot_name)
}

fn is_log_or_snapshot_name(name: &str) -> bool {
    is_snapshot_name(name) || ends_with_one_of(name, &LOG_ENDINGS)
}

fn list(path: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_file = fs::metadata(entry.path()).is_ok_and(|m| m.is_file());
        if is_file && name.to_str().is_some_and(&wanted) {
            files.push(entry.path());
        }
    }
    files.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

/// The same with the folders inside, a few deep; links to folders are not followed.
///
/// # Errors
/// Where a directory cannot be read.
pub fn list_inputs_below(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    list_below(path.as_ref(), is_snapshot_name)
}

/// The same for snapshots and logs together.
///
/// # Errors
/// Where a directory cannot be read.
pub fn list_logs_below(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    list_below(path.as_ref(), is_log_or_snapshot_name)
}

fn list_below(path: &Path, wanted: fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    fn collect(
        folder: &Path,
        wanted: fn(&str) -> bool,
        depth: usize,
        files: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        files.extend(list(folder, wanted)?);
        if depth == 0 {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !hidden && entry.file_type()?.is_dir() {
                collect(&entry.path(), wanted, depth - 1, files)?;
            }
        }
        Ok(())
    }
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    collect(path, wanted, DEPTH, &mut files)?;
    files.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

fn is_snapshot_name(name: &str) -> bool {
    ends_with_one_of(name, &ENDINGS)
}

fn ends_with_one_of(name: &str, endings: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = ["gz", "zst", "zstd"].iter().find_map(|e| name.strip_suffix(&format!(".{e}")));
    let plain = plain.unwrap_or(&name);
    let ends = |ending: &&str| plain.ends_with(&format!(".{ending}"));
    !name.starts_with('.') && !plain.ends_with(".stats.json") && endings.iter().any(ends)
}

/// Compares names so that numbers in them count as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a_rest, mut b_rest) = (a, b);
    loop {
        let (a_text, a_number, a_next) = split(a_rest);
        let (b_text, b_number, b_next) = split(b_rest);
        let order = a_text.cmp(b_text).then_with(|| {
            let (x, y) = (a_number.trim_start_matches('0'), b_number.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        });
        if order != Ordering::Equal {
            return order;
        }
        if a_next.is_empty() || b_next.is_empty() {
            return a_next.len().cmp(&b_next.len()).then_with(|| a.cmp(b));
        }
        (a_rest, b_rest) = (a_next, b_next);
    }
}

/// Text up to the first number, that number, and the rest.
fn split(text: &str) -> (&str, &str, &str) {
    let start = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let digits = text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - start);
    (&text[..start], &text[start..start + digits], &text[start + digits..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_in_the_order_of_their_numbers() {
        let mut names =
            ["rank10.pickle", "rank9.pickle", "rank1.pickle", "rank01.pickle", "a", "rank2_x"];
        names.sort_by(|a, b| natural(a, b));
        let expected =
            ["a", "rank01.pickle", "rank1.pickle", "rank2_x", "rank9.pickle", "rank10.pickle"];
        assert_eq!(names, expected);
    }

    #[test]
    fn snapshots_are_told_by_their_endings() {
        for yes in ["a.pickle", "a.PKL", "b.pickle.gz", "c.json.zst", "snapshot.html"] {
            assert!(is_snapshot_name(yes), "{yes}");
        }
        for no in [".a.pickle", "a.txt", "pickle", "a.gz", "a.stats.json.gz", "a.pickle.bak"] {
            assert!(!is_snapshot_name(no), "{no}");
        }
    }
}

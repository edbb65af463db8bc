//! What `explain` is given: logs in any encoding, snapshots, directories of either.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramwise_trace::{LogOrSnapshot, ReadOptions, Snapshot, read_log_or_snapshot};

use crate::context::Context;
use crate::embed::Content;
use crate::failure::{Failure, Kind};
use crate::input;

/// One file, read.
pub(super) enum Source {
    Log(String),
    Snapshot(Arc<Snapshot>),
}

/// The files that the user named; a directory stands for the logs and snapshots in it, or where it has none,
/// for those in the folders inside.
pub(super) fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unlisted = |error| Failure::io("read the directory", path, &error);
        let mut found = vramwise_trace::list_logs(path).map_err(unlisted)?;
        if found.is_empty() {
            // torchrun makes a folder for each rank.
            found = vramwise_trace::list_logs_below(path).map_err(unlisted)?;
        }
        if found.is_empty() {
            return Err(Failure::new("there is no log and no snapshot in the directory")
                .at(input::shown(path))
                .hint(
                    "logs end in .log, .txt, .out or .err, snapshots in .pickle, .pkl or .json, \
                     with .gz or .zst behind it or not; name other files one by one",
                ));
        }
        files.extend(found);
    }
    Ok(files)
}

/// Reads one file; `-` is standard input.
pub(super) fn read(path: &Path, context: &Context) -> Result<Source, Failure> {
    match context.given(path) {
        Some(Content::Log(text)) => return Ok(Source::Log(text.to_string())),
        Some(Content::Snapshot(snapshot)) => return Ok(Source::Snapshot(snapshot)),
        None => {}
    }
    let options = ReadOptions::default();
    let read = if path.as_os_str() == "-" {
        read_log_or_snapshot(std::io::stdin().lock(), &options)
    } else {
        let file = File::open(path).map_err(|error| Failure::io("read", path, &error))?;
        read_log_or_snapshot(file, &options)
    };
    match read.map_err(|error| Failure::unreadable(path, error))? {
        LogOrSnapshot::Snapshot(snapshot) => Ok(Source::Snapshot(Arc::from(snapshot))),
        LogOrSnapshot::Log(bytes) => Ok(Source::Log(decode(bytes))),
        LogOrSnapshot::PartOfLog(bytes, damage) => {
            let why = Failure::unreadable(path, damage);
            context.warn(&format!("{}; what is before that was read", why.sentence()));
            Ok(Source::Log(decode(bytes)))
        }
    }
}

/// Why a text in which no error stands is no log: nobody should read "none found" of a file that cannot
/// hold one.
pub(super) fn is_no_log(path: &Path, text: &str) -> Option<Failure> {
    let file = input::shown(path);
    // What is meant to be a snapshot, by its name or by a word that stands in nothing else.
    let name = file.to_ascii_lowercase();
    let named = [".pickle", ".pkl"].iter().any(|ending| name.ends_with(ending));
    let is_json = text.trim_start().starts_with(['{', '[']);
    let words = ["\"device_traces\"", "\"segments\""];
    if named || is_json && words.iter().all(|word| text.contains(word)) {
        let error = vramwise_trace::read_slice(text.as_bytes(), &ReadOptions::default()).err()?;
        return Some(Failure::unreadable(path, error));
    }
    is_binary(text).then(|| {
        Failure::new("is neither text nor a snapshot")
            .about(file)
            .hint("give the log of the program, or a snapshot of its memory")
            .kind(Kind::Unreadable { path: path.to_owned(), offset: None })
    })
}

/// Whether a text has too many signs that nobody writes: control characters, and bytes that are no
/// UTF-8.
fn is_binary(text: &str) -> bool {
    let usual = |c: char| matches!(c, '\t' | '\n' | '\r' | '\x08' | '\x0c' | '\x1b');
    let head = || text.chars().take(8192);
    let odd = head().filter(|c| *c == '\u{fffd}' || c.is_control() && !usual(*c)).count();
    odd * 10 > head().count()
}

/// UTF-8, or UTF-16 as PowerShell writes it, with its mark or without.
fn decode(bytes: Vec<u8>) -> String {
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        all => match zeros(all) {
            Some(1) => utf16(all, u16::from_le_bytes),
            Some(_) => utf16(all, u16::from_be_bytes),
            None => String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        },
    }
}

/// Whether every second byte of the beginning is mostly 0, and which: text of Latin letters in UTF-16.
fn zeros(bytes: &[u8]) -> Option<usize> {
    let head = &bytes[..bytes.len().min(512)];
    let count = |from: usize| head.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let (even, odd) = (count(0), count(1));
    let most = head.len() * 2 / 5;
    if head.len() < 4 {
        None
    } else if odd >= most && even == 0 {
        Some(1)
    } else if even >= most && odd == 0 {
        Some(0)
    } else {
        None
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told_from_logs_with_odd_signs() {
        assert!(is_binary(&decode((0..=255).cycle().take(4096).collect())));
        assert!(is_binary("\u{7f}ELF\u{2}\u{1}\u{1}\0\0\0\0\0"));
        for text in [
            "",
            "step 1\r\u{1b}[31mstep 2\u{1b}[0m\n",
            "Gr\u{fffd}\u{fffd}e 1\0 of the tensor that was asked for",
            "显存不足",
        ] {
            assert!(!is_binary(text), "{text}");
        }
    }

    #[test]
    fn text_is_decoded_in_each_encoding() {
        assert_eq!(decode(b"a\xffb".to_vec()), "a\u{fffd}b");
        assert_eq!(decode(vec![0xff, 0xfe, b'o', 0, b'k', 0]), "ok");
        assert_eq!(decode(vec![0xfe, 0xff, 0, b'o', 0, b'k']), "ok");
        let plain = "out of memory";
        let little: Vec<u8> = plain.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = plain.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!((decode(little).as_str(), decode(big).as_str()), (plain, plain));
        assert_eq!(decode(vec![0, 0, 0, 0, 0, 0]), "\0\0\0\0\0\0");
        assert_eq!(decode(Vec::new()), "");
    }
}

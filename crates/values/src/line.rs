//! One value.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Copies up to this size are in the log, bytes: larger ones are outputs and checkpoints, which decide nothing.
pub const SMALL_COPY: usize = 64 << 10;

/// What one copy to the host gave.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its place among the process's copies.
    pub n: u64,
    /// How many bytes were copied.
    pub bytes: usize,
    /// The bytes, two digits each.
    pub hex: String,
    /// Whether a real card gave them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
}

impl Line {
    /// A line for these bytes.
    pub fn new(n: u64, bytes: &[u8], measured: bool) -> Self {
        use std::fmt::Write as _;
        let hex = bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
            let _ = write!(text, "{b:02x}");
            text
        });
        Self { n, bytes: bytes.len(), hex, measured }
    }

    /// The bytes; `None` where the digits are none, or others than `bytes` says.
    pub fn content(&self) -> Option<Vec<u8>> {
        // A sign would pass for a digit below.
        let digits = self.hex.bytes().all(|b| b.is_ascii_hexdigit());
        if self.hex.len() != self.bytes.checked_mul(2)? || !digits {
            return None;
        }
        let pairs = (0..self.hex.len()).step_by(2);
        pairs.map(|i| u8::from_str_radix(self.hex.get(i..i + 2)?, 16).ok()).collect()
    }

    /// The line of the file, with its end.
    pub fn text(&self) -> String {
        serde_json::to_string(self).map_or_else(|_| String::new(), |text| text + "\n")
    }
}

/// Lines that could be read, and what is wrong with the others.
pub type Lines = (Vec<Line>, Vec<String>);

/// The lines of a log, with a complaint for each that cannot be understood.
///
/// # Errors
/// Where the file cannot be opened. What is unreadable behind its beginning is a complaint.
pub fn read(path: &Path) -> io::Result<Lines> {
    let (mut lines, mut complaints) = (Vec::new(), Vec::new());
    for (i, line) in BufReader::new(File::open(path)?).lines().enumerate() {
        let stop = line.is_err();
        let parsed = line.map_err(|error| error.to_string()).and_then(|text| {
            serde_json::from_str::<Line>(&text).map_err(|error| error.to_string())
        });
        match parsed {
            Ok(line) => lines.push(line),
            Err(error) => complaints.push(format!("{}, line {}: {error}", path.display(), i + 1)),
        }
        if stop {
            break;
        }
    }
    Ok((lines, complaints))
}

/// How often a line is not the one behind the line before it: some were taken out, added or moved.
pub fn breaks(lines: &[Line]) -> u64 {
    let mut expected = 0;
    let follows = |line: &&Line| {
        let broken = line.n != expected;
        expected = line.n.saturating_add(1);
        broken
    };
    lines.iter().filter(follows).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_missing_or_moved_is_a_break() {
        let lines = |numbers: &[u64]| -> Vec<Line> {
            numbers.iter().map(|&n| Line::new(n, &[7], true)).collect()
        };
        assert_eq!(breaks(&lines(&[0, 1, 2])), 0);
        assert_eq!(breaks(&lines(&[0, 2, 3])), 1);
        assert_eq!(breaks(&lines(&[1, 2])), 1);
        assert_eq!(breaks(&lines(&[0, 2, 1, 3])), 3);
        assert_eq!(breaks(&lines(&[u64::MAX, u64::MAX])), 1);
    }

    #[test]
    fn bytes_come_back_from_their_line() {
        let line = Line::new(3, &[0, 255, 42], false);
        assert_eq!(line.text(), "{\"n\":3,\"bytes\":3,\"hex\":\"00ff2a\"}\n");
        assert_eq!(line.content(), Some(vec![0, 255, 42]));
        let measured = Line::new(0, &[], true);
        assert_eq!(serde_json::from_str::<Line>(&measured.text()).unwrap(), measured);
    }

    #[test]
    fn a_line_that_was_edited_wrongly_has_no_bytes() {
        for hex in ["", "0", "00ff2", "00ff2g", "00ff2a00", "+1+1+1", "äa0"] {
            let line = Line { hex: hex.to_owned(), ..Line::new(0, &[1, 2, 3], false) };
            assert_eq!(line.content(), None, "{hex}");
        }
    }

    #[test]
    fn lines_that_are_none_are_told_with_their_number() {
        let path = std::env::temp_dir().join(format!("vramwise-lines-{}", std::process::id()));
        std::fs::write(&path, b"{\"n\":0,\"bytes\":1,\"hex\":\"07\"}\nnonsense\n").unwrap();
        let (lines, complaints) = read(&path).unwrap();
        assert_eq!(lines, [Line::new(0, &[7], false)]);
        assert!(complaints[0].contains("line 2"), "{complaints:?}");
        std::fs::write(&path, [b'x', 0xff, b'\n', b'y']).unwrap();
        assert_eq!(read(&path).unwrap().1.len(), 1);
        std::fs::remove_file(&path).unwrap();
    }
}

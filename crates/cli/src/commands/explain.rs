//! `vramwise explain FILE`.

mod json;
mod text;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use vramwise_analyze::oom;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = "\
Examples:
  vramwise explain train.log
  python train.py 2>&1 | tee train.log; vramwise explain train.log
  kubectl logs job/train | vramwise explain -
  vramwise explain rank*.log --json

Every out-of-memory error of the text is found, whatever stands around it: other ranks, colours,
progress bars, wrapped lines. Exit status: 0 explained (or none found), 2 unreadable input.";

/// Say why a program ran out of memory, from its log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Logs, or any text with the error in it; - for standard input.
    #[arg(value_hint = ValueHint::FilePath, required = true)]
    files: Vec<PathBuf>,
}

/// One file and what was found in it.
pub(super) struct Explained {
    /// The file's name as it is shown.
    pub(super) file: String,
    pub(super) report: oom::LogReport,
}

/// Reads the logs and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect(&args.files)?;
    let mut explained = Vec::new();
    for path in &args.files {
        let text = read(path)?;
        explained.push(Explained { file: input::shown(path), report: oom::explain_log(&text) });
    }
    if context.global.json {
        context.report_json(&json::Report::new(&explained))?;
    } else {
        context.report(&text::render(&explained, context))?;
    }
    Ok(Status::Fine)
}

/// The text of a log; bytes that are no text are shown as such.
fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let done = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    done.map_err(|error| Failure::io("read", Path::new(&input::shown(path)), &error))?;
    decode(bytes).map_err(|failure| failure.at(input::shown(path)))
}

/// UTF-8, or UTF-16 as PowerShell writes it.
fn decode(bytes: Vec<u8>) -> Result<String, Failure> {
    match bytes.as_slice() {
        [0x80, 2..=5, ..] => Err(Failure::new("this is a pickle, not a log")
            .hint("vramwise validate and vramwise replay read snapshots")),
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Err(Failure::new("this is a compressed file")
                .hint("decompress it into the command: zcat FILE | vramwise explain -"))
        }
        [0xff, 0xfe, rest @ ..] => Ok(utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Ok(utf16(rest, u16::from_be_bytes)),
        _ => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_and_other_files_are_named() {
        assert_eq!(decode(b"a\xffb".to_vec()).ok().as_deref(), Some("a\u{fffd}b"));
        assert_eq!(decode(vec![0xff, 0xfe, b'o', 0, b'k', 0]).ok().as_deref(), Some("ok"));
        assert_eq!(decode(vec![0xfe, 0xff, 0, b'o', 0, b'k']).ok().as_deref(), Some("ok"));
        assert!(decode(vec![0x80, 4, 0x95]).is_err());
        assert!(decode(vec![0x1f, 0x8b, 8]).is_err());
        assert_eq!(decode(Vec::new()).ok().as_deref(), Some(""));
    }
}

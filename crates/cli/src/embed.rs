//! The commands for a program that embeds them, such as the Python package: snapshots that are read already go in,
//! a report comes out, and nothing is printed.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use vramwise_trace::{ReadOptions, Snapshot};

pub use crate::failure::{Failure, Kind};

use crate::Status;
use crate::args::Cli;
use crate::commands;
use crate::context::Context;
use crate::input;

/// What a command is to find under a name instead of a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// A snapshot.
    Snapshot(Arc<Snapshot>),
    /// The text of a log.
    Log(Arc<str>),
}

/// Something that was read before, under the name that reports give it.
#[derive(Clone, Debug)]
pub struct Given {
    /// The name, as it stands in the arguments.
    pub name: PathBuf,
    /// What it is.
    pub content: Content,
}

/// A report in both forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// As `--json` prints it.
    pub json: String,
    /// As it is printed for people.
    pub text: String,
    /// What would have been said on standard error.
    pub warnings: Vec<String>,
    /// Whether the exit status would have been 1.
    pub is_finding: bool,
}

/// Runs one command. `args` has no name of the program in front. Each of `given` is handed out once, in order, to the
/// command that names it; so two may have the same name. What follows `stop` being set is [`Kind::Stopped`], at
/// the next point where a command looks.
///
/// # Errors
/// Where the program would exit with status 2.
pub fn answer(
    args: &[OsString],
    given: Vec<Given>,
    stop: Arc<AtomicBool>,
) -> Result<Answer, Failure> {
    let program = OsString::from("vramwise");
    let cli = Cli::try_parse_from(std::iter::once(&program).chain(args)).map_err(|usage| {
        let text = usage.to_string();
        let line = text.lines().next().unwrap_or_default();
        Failure::new(line.strip_prefix("error: ").unwrap_or(line))
    })?;
    let context = Context::embedded(cli.global, given, stop);
    let status = commands::run(cli.command, &context)?;
    let answer = context.into_answer();
    Ok(Answer { is_finding: status == Status::Finding, ..answer })
}

/// Reads a snapshot from a file.
///
/// # Errors
/// Where it cannot be opened, or is no snapshot.
pub fn read_path(path: &Path) -> Result<Snapshot, Failure> {
    vramwise_trace::read_path(path, &ReadOptions::default())
        .map_err(|error| Failure::unreadable(path, error))
}

/// Reads a snapshot from the content of a file, which errors call `name`.
///
/// # Errors
/// Where it is no snapshot.
pub fn read_bytes(bytes: &[u8], name: &Path) -> Result<Snapshot, Failure> {
    vramwise_trace::read_slice(bytes, &ReadOptions::default())
        .map_err(|error| Failure::unreadable(name, error))
}

/// Cuts a part out of a history, as `vramwise slice` does: the events `range` of a device, or of the first that has a
/// history. `name` is what errors call the snapshot.
///
/// # Errors
/// Where there is no such part, or the state behind it cannot be known.
pub fn slice(
    snapshot: &Snapshot,
    name: &Path,
    device: Option<u32>,
    range: Range<usize>,
) -> Result<Snapshot, Failure> {
    let (number, device) = input::device_or_first(snapshot, name, device)?;
    let options = commands::slice::options(snapshot, device, None, None);
    commands::slice::cut(snapshot, name, number, range, &options).map(|sliced| sliced.snapshot)
}

/// The annotated blocks of a device, or of the first that has a history.
///
/// # Errors
/// Where there is no such device, or no history.
pub fn spans(
    snapshot: &Snapshot,
    name: &Path,
    device: Option<u32>,
) -> Result<Vec<(String, Range<usize>)>, Failure> {
    let (number, _) = input::device_or_first(snapshot, name, device)?;
    let found = vramwise_files::spans::spans(snapshot, number);
    Ok(found.into_iter().map(|span| (span.name, span.events)).collect())
}

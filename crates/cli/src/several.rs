//! Many files in one command: the readable ones are answered, the others are named.
//!
//! One rule for every command that takes several files or a directory: a file that cannot be used is
//! named with the reason, as a warning and in the JSON report, and makes the exit status 1. Only where
//! none can be used, or the only one, it is an error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Status;
use crate::context::Context;
use crate::failure::{Failure, Kind};
use crate::input;
use crate::text::counted;

/// A file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Unreadable {
    pub(crate) file: String,
    pub(crate) reason: String,
}

impl Unreadable {
    fn new(path: &Path, failure: &Failure) -> Self {
        let file = input::shown(path);
        // The reason stands beside the name.
        let sentence = failure.sentence();
        let named = format!("{file}: ");
        let reason = sentence.strip_prefix(&named).unwrap_or(sentence).to_owned();
        Self { file, reason }
    }
}

/// What was read of several files.
pub(crate) struct Several<T> {
    pub(crate) read: Vec<T>,
    pub(crate) unreadable: Vec<Unreadable>,
}

impl<T> Several<T> {
    /// The exit status of a report that found nothing else to complain about.
    pub(crate) fn status(&self, finding: bool) -> Status {
        if finding || !self.unreadable.is_empty() { Status::Finding } else { Status::Fine }
    }
}

/// Drops what is named again: the same file twice would count twice. What an embedding program gave may
/// have one name for several.
pub(crate) fn once(files: Vec<PathBuf>, context: &Context) -> Vec<PathBuf> {
    if context.is_embedded() {
        return files;
    }
    let mut seen = BTreeSet::new();
    let mut kept = Vec::with_capacity(files.len());
    for path in files {
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if seen.insert(real) {
            kept.push(path);
        } else {
            context.warn(&format!("{} was named already: it is read once", input::shown(&path)));
        }
    }
    kept
}

/// Reads each of the files, and goes on where one cannot be used.
///
/// # Errors
/// Where none can be used, or the only one cannot.
pub(crate) fn each<T>(
    files: &[PathBuf],
    context: &Context,
    mut read: impl FnMut(&Path) -> Result<T, Failure>,
) -> Result<Several<T>, Failure> {
    if let [only] = files {
        return Ok(Several { read: vec![read(only)?], unreadable: Vec::new() });
    }
    let progress = context.progress("reading", files.len() as u64);
    let mut several = Several { read: Vec::new(), unreadable: Vec::new() };
    let mut first: Option<Failure> = None;
    for (i, path) in files.iter().enumerate() {
        match read(path) {
            Ok(one) => several.read.push(one),
            Err(failure) if failure.what_kind() == &Kind::Stopped => return Err(failure),
            Err(failure) => {
                several.unreadable.push(Unreadable::new(path, &failure));
                first.get_or_insert(failure);
            }
        }
        progress.set(i as u64 + 1);
    }
    drop(progress);
    for one in &several.unreadable {
        context.warn(&format!("left out: {}: {}", one.file, one.reason));
    }
    match (first, several.unreadable.first()) {
        (Some(first), Some(one)) if several.read.is_empty() => {
            let all = counted(files.len() as u64, "file");
            let failure = Failure::new(format!("none of the {all} can be used"))
                .at(format!("{}: {}", one.file, one.reason))
                .kind(first.what_kind().clone());
            Err(match first.advice() {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        _ => Ok(several),
    }
}

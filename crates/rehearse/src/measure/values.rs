//! A program on a real card, watched for what it reads back: the log that answers a rehearsal of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::child::{self, Ended, Streams};
use crate::error::RehearsalError;
use crate::{libraries, room, session};

/// By which the object that is preloaded finds the log of the first process.
const VARIABLE: &str = "VRAMWISE_PROBE_VALUES";
/// The log of the first process, in the room.
const LOG: &str = "values.jsonl";

/// What one process read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadValues {
    /// What comes between the name of the log and `.jsonl`: empty for the first process, else its rank or number.
    pub process: String,
    /// Its log.
    pub log: PathBuf,
    /// Copies to the host in it.
    pub reads: u64,
    /// Bytes that they gave.
    pub bytes: u64,
}

/// How a watched program ended, and what its processes read. The logs are there as long as this is.
pub struct Watched {
    /// Its end.
    pub ended: Ended,
    /// The logs, the first process's first.
    pub values: Vec<ReadValues>,
    _room: room::Room,
}

/// Runs a command on this machine's GPU and writes down what it reads back. It is changed in nothing but that copies to
/// the host are waited for.
///
/// # Errors
/// [`RehearsalError`] where the object that watches is missing, or the command cannot be started.
pub fn watch(command: &[String], streams: Streams) -> Result<Watched, RehearsalError> {
    let probe = libraries::probe()?;
    let room = room::Room::temporary()?;
    let Some((program, arguments)) = command.split_first() else {
        return Err(RehearsalError::NoProgram(String::new()));
    };
    let mut preload = probe.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload = [preload, before].join(&OsString::from(":"));
    }
    let mut child = Command::new(program);
    child.args(arguments).env("LD_PRELOAD", preload).env(VARIABLE, room.path().join(LOG));
    let ended = child::run(child, streams, None, None)
        .map_err(|error| RehearsalError::io("run", program, error))?;
    let mut values = Vec::new();
    for (name, log) in session::entries(room.path()) {
        let Some(process) = name.strip_prefix("values").and_then(|n| n.strip_suffix(".jsonl"))
        else {
            continue;
        };
        let (lines, _) =
            vramwise_values::read(&log).map_err(|error| RehearsalError::io("read", &log, error))?;
        values.push(ReadValues {
            process: process.trim_start_matches('.').to_owned(),
            reads: lines.len() as u64,
            bytes: lines.iter().map(|line| line.bytes as u64).sum(),
            log,
        });
    }
    values.sort_by(|a, b| a.process.cmp(&b.process));
    Ok(Watched { ended, values, _room: room })
}

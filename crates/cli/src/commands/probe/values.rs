//! `vramwise probe --values FILE -- COMMAND`: what a program reads back from a real card.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vramwise_rehearse::Streams;
use vramwise_rehearse::measure::{ReadValues, watch};

use crate::Status;
use crate::commands::rehearse::failure;
use crate::context::Context;
use crate::failure::Failure;
use crate::text::{counted, grouped, printable};

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    /// The exit status of the command.
    exit_status: u8,
    seconds: f64,
    /// What each process read, the first one first; empty where none read anything.
    processes: Vec<Process>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Process {
    /// Its rank or number; empty for the first.
    process: String,
    /// Its log.
    file: String,
    /// Copies of up to 64 KiB from the device to the host.
    reads: u64,
    bytes: u64,
}

/// Runs the command and keeps the logs.
pub(super) fn run(path: &Path, command: &[String], context: &Context) -> Result<Status, Failure> {
    // Before the program runs, which may take hours.
    context.destination(path)?.try_to_write()?;
    for further in further_logs(path) {
        context.destination(&further)?;
    }
    let streams = if context.global.json { Streams::ToStderr } else { Streams::Through };
    let watched = watch(command, streams).map_err(|error| failure(&error))?;
    let mut processes = Vec::new();
    for read in &watched.values {
        processes.push(keep(path, read, context)?);
    }
    let report = Report {
        schema: 1,
        exit_status: watched.ended.status,
        seconds: watched.ended.milliseconds as f64 / 1000.0,
        processes,
    };
    context.answer(&report, || report.render(path))?;
    Ok(match report.exit_status {
        0 => Status::Fine,
        status => Status::Child(status),
    })
}

/// Logs of further processes that lie beside `path` already, sorted.
fn further_logs(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return Vec::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let stem = format!("{}.", stem.to_string_lossy());
    let further = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let process = name.strip_prefix(&stem)?.strip_suffix(".jsonl")?;
        let counted = process.parse::<u32>().is_ok() || process.starts_with("rank-");
        counted.then(|| path.with_file_name(&name))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(further).collect();
    found.sort();
    found
}

/// Puts the log of a process where the user wants it, those of further processes beside it.
fn keep(path: &Path, read: &ReadValues, context: &Context) -> Result<Process, Failure> {
    let place = if read.process.is_empty() {
        path.to_owned()
    } else {
        path.with_extension(format!("{}.jsonl", read.process))
    };
    let log = std::fs::read(&read.log).map_err(|error| Failure::io("read", &read.log, &error))?;
    context.destination(&place)?.write(&log)?;
    Ok(Process {
        process: read.process.clone(),
        file: place.display().to_string(),
        reads: read.reads,
        bytes: read.bytes,
    })
}

impl Report {
    fn render(&self, path: &Path) -> String {
        let mut text = String::new();
        for Process { file, reads, bytes, .. } in &self.processes {
            let reads = counted(*reads, "read");
            text.push_str(&format!("{}: {reads}, {} bytes\n", printable(file), grouped(*bytes)));
        }
        if self.processes.is_empty() && self.exit_status != 0 {
            text.push_str(&format!(
                "the program ended with status {}; until then it had read nothing of up to 64 KiB back from a GPU\n",
                self.exit_status
            ));
        } else if self.processes.is_empty() {
            text.push_str(
                "the program read nothing of up to 64 KiB back from a GPU: a rehearsal of it needs no values\n",
            );
        } else {
            let path = path.display().to_string();
            text.push_str(&format!(
                "\nuse it with  vramwise rehearse --values {} -- COMMAND\n",
                printable(&path)
            ));
        }
        text
    }
}

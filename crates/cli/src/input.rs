//! Opening snapshots and understanding settings, for every command that replays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramwise_model::settings::{self, Backend, Config, SettingsError};
use vramwise_replay::{Recording, VerifyOptions};
use vramwise_trace::{DeviceTrace, ReadOptions, Snapshot};
use vramwise_types::TorchVersion;

use crate::context::Context;
use crate::embed::Content;
use crate::failure::{Failure, Kind};

/// Reads a snapshot; `-` is standard input.
pub(crate) fn read(path: &Path, context: &Context) -> Result<Arc<Snapshot>, Failure> {
    if let Some(Content::Snapshot(snapshot)) = context.given(path) {
        return Ok(snapshot);
    }
    if path.is_dir() {
        return Err(is_directory(path));
    }
    let options = ReadOptions::default();
    let read = if path.as_os_str() == "-" {
        vramwise_trace::read_reader(std::io::stdin().lock(), &options)
    } else {
        vramwise_trace::read_path(path, &options)
    };
    read.map(Arc::new).map_err(|error| Failure::unreadable(path, error))
}

/// Names of files that an error shows.
const SHOWN: usize = 5;

/// A directory where one file is looked at: says which files are there.
fn is_directory(path: &Path) -> Failure {
    let found = vramwise_trace::list_inputs(path).unwrap_or_default();
    let Some(last) = found.last() else {
        return Failure::new("is a directory; name one of the files in it")
            .at(shown(path))
            .hint("there is no snapshot in it: they end in .pickle, .pkl or .json, with .gz or .zst behind it or not");
    };
    let mut names: Vec<String> = found.iter().take(SHOWN).map(|file| shown(file)).collect();
    if let Some(more) = found.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        names.push(format!("{more} more, the last of which is {}", shown(last)));
    }
    Failure::new("is a directory; name one of the files in it").at(shown(path)).hint(format!(
        "there are {}; vramwise ranks, tune, leaks and explain take all of them together",
        names.join(", ")
    ))
}

/// The files that the user named; a directory stands for the snapshots in it, by rank, or where it has none,
/// for those in the folders inside.
pub(crate) fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unlisted = |error| Failure::io("read the directory", path, &error);
        let mut found = vramwise_trace::list_inputs(path).map_err(unlisted)?;
        if found.is_empty() {
            found = vramwise_trace::list_inputs_below(path).map_err(unlisted)?;
        }
        if found.is_empty() {
            return Err(Failure::new("there is no snapshot in the directory")
                .at(shown(path))
                .hint(
                    "snapshots end in .pickle, .pkl or .json, with .gz or .zst behind it or not",
                ));
        }
        files.extend(found);
    }
    Ok(files)
}

/// How a path is shown.
pub(crate) fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// The device that the user chose, or the first one with a history.
pub(crate) fn device_or_first<'a>(
    snapshot: &'a Snapshot,
    path: &Path,
    chosen: Option<u32>,
) -> Result<(u32, &'a DeviceTrace), Failure> {
    if let Some(number) = chosen {
        let device = snapshot.devices.get(number as usize).ok_or_else(|| {
            let count = snapshot.devices.len();
            Failure::new(format!("there is no device {number}: the file has {count}"))
                .at(shown(path))
                .hint("vramwise validate lists the devices of a file")
        })?;
        return Ok((number, device));
    }
    let first = (0u32..).zip(&snapshot.devices).find(|(_, d)| !d.events.is_empty());
    first.ok_or_else(|| no_history(snapshot, path))
}

/// The device that the user chose, or the only one with a history.
pub(crate) fn device<'a>(
    snapshot: &'a Snapshot,
    path: &Path,
    context: &Context,
) -> Result<(u32, &'a DeviceTrace), Failure> {
    let first = device_or_first(snapshot, path, context.global.device)?;
    if context.global.device.is_some() {
        return Ok(first);
    }
    let with_history = (0u32..).zip(&snapshot.devices).filter(|(_, d)| !d.events.is_empty());
    let others: Vec<String> = with_history.skip(1).map(|(n, _)| n.to_string()).collect();
    if !others.is_empty() {
        context.warn(&format!(
            "{}: device {} is replayed; choose another with --device ({})",
            shown(path),
            first.0,
            others.join(", ")
        ));
    }
    Ok(first)
}

fn no_history(snapshot: &Snapshot, path: &Path) -> Failure {
    let segments: usize = snapshot.devices.iter().map(|d| d.segments.len()).sum();
    Failure::new(format!(
        "there is no allocator history to replay: the file has {segments} segments and no events"
    ))
    .kind(Kind::NoHistory { path: path.to_owned() })
    .at(shown(path))
    .hint(
        "call torch.cuda.memory._record_memory_history(max_entries=1_000_000) at the start of the \
         program, before torch.cuda.memory._dump_snapshot()",
    )
}

/// Verifies a recording under a capacity, which may be the limit that it was made under or a part of the
/// question: the first is taken where the model then reproduces the recording, since flushes of the cache
/// are understood only with the limit that caused them. Says whether the capacity is a question.
pub(crate) fn verify(device: &DeviceTrace, options: &VerifyOptions) -> (Recording, bool) {
    let recording = Recording::verify(device, options);
    if options.limit.is_none() || recording.first_divergence.is_none() {
        return (recording, false);
    }
    let without = Recording::verify(device, &VerifyOptions { limit: None, ..options.clone() });
    if without.first_divergence.is_none() { (without, true) } else { (recording, false) }
}

/// The name of the allocator that made a recording.
pub(crate) fn allocator_name(drop_in: bool) -> &'static str {
    if drop_in { "vramwise" } else { "pytorch" }
}

/// The PyTorch version meant: the user's, the file's, or the reference.
pub(crate) fn version(given: Option<TorchVersion>, snapshot: &Snapshot) -> TorchVersion {
    given.or(snapshot.version_guess).unwrap_or_default()
}

/// Understands a settings string.
pub(crate) fn settings(text: &str, version: TorchVersion) -> Result<Config, Failure> {
    let config = settings::parse(text, version)
        .map(|parsed| parsed.config)
        .map_err(|e| settings_failure(&e))?;
    if config.backend != Backend::Native {
        return Err(Failure::new(
            "backend:cudaMallocAsync leaves PyTorch's own allocator out: there is no model of it to replay",
        )
        .at(format!("\"{text}\"")));
    }
    Ok(config)
}

/// Understands a settings string that is set in mid-run.
pub(crate) fn settings_onto(
    previous: &Config,
    text: &str,
    version: TorchVersion,
) -> Result<Config, Failure> {
    settings::parse_onto(previous, text, version)
        .map(|parsed| parsed.config)
        .map_err(|e| settings_failure(&e))
}

fn settings_failure(error: &SettingsError) -> Failure {
    let option = error.option.as_ref().map_or(String::new(), |option| format!("{option}: "));
    let mut hints = error.hints.clone();
    match &error.suggestion {
        Some(text) if text.is_empty() => hints.push("leave the variable unset".to_owned()),
        Some(text) => hints.push(format!("write \"{text}\"")),
        None => {}
    }
    let failure = Failure::new(format!("{option}{}", error.problem)).at(format!(
        "byte {} of \"{}\"; PyTorch {} {}",
        error.offset, error.text, error.version, error.reaction
    ));
    let failure = failure.kind(Kind::Settings { text: error.text.clone(), offset: error.offset });
    if hints.is_empty() { failure } else { failure.hint(hints.join("; ")) }
}

//! Replays recordings and compares.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::record::{Python, Recorded};
use super::{Outcome, unpack};
use crate::shell;

/// Counters that a history does not show, or that count what no replay can know.
fn is_hidden(counter: &str) -> bool {
    matches!(counter, "num_sync_all_streams" | "num_alloc_retries")
        // Kept per pool by its id from 2.13 on; the model counts pools together.
        || counter.starts_with("reserved_bytes_by_private_pools.")
}

/// Replays all recordings, with the release told and with the release guessed from the file.
pub(super) fn all(program: &Path, python: &Python, recorded: &Recorded) -> Result<Outcome> {
    let mut outcome =
        Outcome { exact: 0, programs: recorded.programs.len(), differences: Vec::new() };
    for name in &recorded.programs {
        if !recorded.snapshot(name).exists() {
            let log = recorded.directory.join("log");
            outcome.differences.push(format!("{name} was not recorded: see {}", log.display()));
            continue;
        }
        let stats: Value = serde_json::from_slice(&unpack(&recorded.stats(name))?)?;
        let release: Vec<&str> = python.torch.split('.').take(2).collect();
        let mut found = None;
        for told in [None, Some(release.join("."))] {
            let difference = difference(program, recorded, name, &stats, told.as_deref())?;
            let how = if told.is_some() { "" } else { " (release guessed)" };
            found = found.or(difference.map(|what| format!("{name}{how}: {what}")));
        }
        outcome.exact += usize::from(found.is_none());
        outcome.differences.extend(found);
    }
    Ok(outcome)
}

/// The first thing that a replay does not reproduce.
fn difference(
    program: &Path,
    recorded: &Recorded,
    name: &str,
    stats: &Value,
    told: Option<&str>,
) -> Result<Option<String>> {
    let mut command = shell::command(program, &["replay", "--json", "-q"]);
    if let Some(limit) = stats["limit_bytes"].as_u64() {
        command.args(["--capacity", &limit.to_string()]);
    }
    if let Some(told) = told {
        command.args(["--torch", told]);
    }
    let output =
        command.arg(recorded.snapshot(name)).output().context("cannot run vramwise replay")?;
    let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
        return Ok(Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    };
    let verify = &report["verify"];
    if verify.is_null() {
        return Ok(Some(
            "the limit was taken for a question, not for a part of the recording".to_owned(),
        ));
    }
    if let Some(divergence) = verify["first_divergence"].as_object() {
        let text = |key: &str| divergence.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let event = divergence.get("event").cloned().unwrap_or_default();
        return Ok(Some(format!("event {event}: {}, but {}", text("expected"), text("got"))));
    }
    for kind in
        ["allocs", "segment_allocs", "segment_frees", "segment_maps", "segment_unmaps", "ooms"]
    {
        let exact = &verify[format!("{kind}_exact")];
        if verify[kind] != *exact {
            return Ok(Some(format!("{exact} of {} {kind} are exact", verify[kind])));
        }
    }
    if verify["final_state_exact"] != true {
        return Ok(Some(format!("the final state: {}", verify["final_state_difference"])));
    }
    let counters = stats["final"].as_object().context("a recording without counters")?;
    let other = counters.iter().find(|(k, v)| !is_hidden(k) && report["stats"][k.as_str()] != **v);
    Ok(other.map(|(k, v)| format!("{k} is {v}, the model says {}", report["stats"][k.as_str()])))
}

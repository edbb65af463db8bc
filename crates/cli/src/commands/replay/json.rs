//! The report of `vramwise replay --json`; its keys are a promise to scripts.

use std::collections::BTreeMap;

use serde::Serialize;
use vramwise_model::stats::{Family, Stats};
use vramwise_replay::{Agreement, Divergence, OutOfMemory, Recording};
use vramwise_trace::Snapshot;

use super::Args;
use super::request::{Answer, Request};
use crate::input;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    pub(super) file: String,
    pub(super) device: u32,
    pub(super) torch_version_guess: Option<String>,
    /// The version whose rules were applied.
    pub(super) torch_version: String,
    pub(super) events: usize,
    /// `pytorch`, or `vramwise` where that was in its place: then its blocks are not compared, and `verify` is `null`.
    pub(super) recorded_allocator: &'static str,
    pub(super) settings: SettingsReport,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) verify: Option<Verify>,
    pub(super) stats: BTreeMap<String, i64>,
    pub(super) peak_reserved_bytes_range: (i64, i64),
    pub(super) device_calls: DeviceCalls,
    pub(super) oom: Vec<OomReport>,
    pub(super) pools: usize,
    /// The same program under vramwise's allocator, where that was asked.
    pub(super) drop_in: Option<super::drop_in::DropInReport>,
    pub(super) assumptions: Vec<String>,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SettingsReport {
    pub(super) recorded: String,
    pub(super) replayed: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Verify {
    pub(super) allocs: u64,
    pub(super) allocs_exact: u64,
    pub(super) segment_allocs: u64,
    pub(super) segment_allocs_exact: u64,
    pub(super) segment_frees: u64,
    pub(super) segment_frees_exact: u64,
    pub(super) segment_maps: u64,
    pub(super) segment_maps_exact: u64,
    pub(super) segment_unmaps: u64,
    pub(super) segment_unmaps_exact: u64,
    pub(super) ooms: u64,
    pub(super) ooms_exact: u64,
    pub(super) final_state_exact: bool,
    pub(super) final_state_difference: Option<String>,
    pub(super) first_divergence: Option<DivergenceReport>,
    /// Why the file cannot come from PyTorch's allocator.
    pub(super) impossible: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DivergenceReport {
    pub(super) event: usize,
    pub(super) expected: String,
    pub(super) got: String,
    pub(super) why: String,
    pub(super) context: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DeviceCalls {
    pub(super) malloc: i64,
    pub(super) free: i64,
    pub(super) map: i64,
    pub(super) unmap: i64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OomReport {
    pub(super) event: usize,
    pub(super) size_bytes: u64,
    pub(super) device_request_bytes: Option<u64>,
    pub(super) allocated_bytes: Option<u64>,
    pub(super) reserved_bytes: Option<u64>,
}

impl Report {
    pub(super) fn new(
        args: &Args,
        device: u32,
        snapshot: &Snapshot,
        request: &Request,
        answer: &Answer,
    ) -> Self {
        let recording = &answer.recording;
        let stats = answer.what_if.as_ref().map_or(&recording.stats, |w| &w.outcome.stats);
        let peak = stats.all(Family::ReservedBytes).peak;
        let recorded = request.recorded.config.to_conf_string(request.version);
        let replayed = request.conf.as_ref().map(|c| c.to_conf_string(request.version));
        // Of settings that changed, be it before or behind a slice, the file says the last ones: those at its begin
        // are meant here.
        let changed = snapshot.recorder.as_ref().is_some_and(|note| note.settings.is_some());
        let written = snapshot.settings.as_ref().filter(|_| !changed);
        let written = written.map(|s| s.conf.clone());
        Self {
            schema: 1,
            file: input::shown(&args.file),
            device,
            torch_version_guess: snapshot.version_guess.map(|v| v.to_string()),
            torch_version: recording.version.to_string(),
            events: recording.entries,
            recorded_allocator: input::allocator_name(recording.requests_only),
            settings: SettingsReport {
                replayed: replayed.unwrap_or_else(|| recorded.clone()),
                recorded: written.unwrap_or(recorded),
            },
            capacity_bytes: request.capacity.or(recording.limit),
            verify: answer.what_if.is_none().then(|| verify(recording)),
            stats: stats.to_pairs(request.version).into_iter().collect(),
            peak_reserved_bytes_range: answer
                .what_if
                .as_ref()
                .map_or((peak, peak), |w| w.peak_reserved),
            device_calls: device_calls(stats),
            oom: ooms(answer),
            pools: recording.pool_ids.len(),
            drop_in: answer.drop_in.as_ref().map(super::drop_in::DropInReport::new),
            assumptions: answer.assumptions.clone(),
            warnings: snapshot.warnings.iter().map(|w| w.message.clone()).collect(),
        }
    }
}

/// `num_device_alloc` and `num_device_free` count both kinds of calls; ordinary segments have counters of
/// their own.
fn device_calls(stats: &Stats) -> DeviceCalls {
    let segments = stats.all(Family::Segment);
    DeviceCalls {
        malloc: segments.allocated,
        free: segments.freed,
        map: stats.num_device_alloc - segments.allocated,
        unmap: stats.num_device_free - segments.freed,
    }
}

fn ooms(answer: &Answer) -> Vec<OomReport> {
    match &answer.what_if {
        Some(what_if) => what_if.outcome.ooms.iter().map(predicted).collect(),
        None => answer.recording.ooms.iter().map(|(event, size)| recorded(*event, *size)).collect(),
    }
}

fn predicted(oom: &OutOfMemory) -> OomReport {
    OomReport {
        event: oom.event,
        size_bytes: oom.requested,
        device_request_bytes: Some(oom.segment),
        allocated_bytes: Some(oom.allocated),
        reserved_bytes: Some(oom.reserved),
    }
}

fn recorded(event: usize, size: u64) -> OomReport {
    OomReport {
        event,
        size_bytes: size,
        device_request_bytes: None,
        allocated_bytes: None,
        reserved_bytes: None,
    }
}

fn verify(recording: &Recording) -> Verify {
    let a = &recording.agreement;
    let pair = |agreement: Agreement| (agreement.recorded, agreement.exact);
    let (allocs, allocs_exact) = pair(a.allocs);
    let (segment_allocs, segment_allocs_exact) = pair(a.segment_allocs);
    let (segment_frees, segment_frees_exact) = pair(a.segment_frees);
    let (segment_maps, segment_maps_exact) = pair(a.segment_maps);
    let (segment_unmaps, segment_unmaps_exact) = pair(a.segment_unmaps);
    let (ooms, ooms_exact) = pair(a.ooms);
    Verify {
        allocs,
        allocs_exact,
        segment_allocs,
        segment_allocs_exact,
        segment_frees,
        segment_frees_exact,
        segment_maps,
        segment_maps_exact,
        segment_unmaps,
        segment_unmaps_exact,
        ooms,
        ooms_exact,
        final_state_exact: recording.final_difference.is_none(),
        final_state_difference: recording.final_difference.clone(),
        first_divergence: recording.first_divergence.as_ref().map(divergence),
        impossible: recording.impossible.clone(),
    }
}

fn divergence(d: &Divergence) -> DivergenceReport {
    DivergenceReport {
        event: d.event,
        expected: d.expected.clone(),
        got: d.got.clone(),
        why: d.why.clone(),
        context: d.context.clone(),
    }
}

//! What a replay proves about a snapshot, for programs.

use serde::Serialize;
use vramwise_analyze::failure::{Device, Failure, PinnedSegment, Proof, Trial};

use crate::stacks::SampledStacks;

/// A snapshot's device, whether a request failed or not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Verified {
    file: String,
    device: u32,
    events: usize,
    /// Whether a replay reproduced the whole recording.
    exact: bool,
    not_exact_reason: Option<String>,
    conf: String,
    peak_reserved_bytes: Option<u64>,
    /// Most bytes held in a replay under `--capacity`, where nothing fails under it.
    peak_reserved_under_capacity_bytes: Option<u64>,
    recorded_failures: usize,
    /// Whether a request fails; `null` where `--capacity` asks and no replay can tell.
    fails: Option<bool>,
    /// Where only some steps were recorded with stacks, which; `null` where all are alike.
    sampled_stacks: Option<SampledStacks>,
    assumptions: Vec<String>,
}

/// What is known of a failed request beside the figures that a text has.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Failed {
    event: usize,
    time_us: Option<u64>,
    /// Whether it failed in the recording, or only under the capacity that was asked about.
    recorded: bool,
    place: String,
    asked_bytes: u64,
    live_requested_bytes: u64,
    pending_free_bytes: u64,
    free_own_bytes: u64,
    largest_free_block_bytes: u64,
    free_other_streams_bytes: u64,
    free_other_pools_bytes: u64,
    limit_low_bytes: u64,
    limit_high_bytes: u64,
    limit_given: bool,
    contributing: Vec<Contributing>,
    holders: Vec<HolderReport>,
    pinned: Vec<Pinned>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Contributing {
    cause: &'static str,
    bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HolderReport {
    place: String,
    bytes: u64,
    blocks: u64,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Pinned {
    addr: u64,
    size_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    stream: u64,
    pool: String,
    small: bool,
    blocks: Vec<PinBlockReport>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PinBlockReport {
    addr: u64,
    size_bytes: u64,
    place: String,
    pending_free: bool,
}

/// The replay behind a piece of advice.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TrialReport {
    request_passes: bool,
    /// Requests that fail later in the recorded history.
    later_failures: usize,
    peak_reserved_bytes: u64,
    limit_bytes: Option<u64>,
    conf: String,
    address_orders: usize,
}

impl Verified {
    pub(super) fn new(file: &str, device: &Device) -> Self {
        let not_exact_reason = match &device.proof {
            Proof::Exact(_) => None,
            Proof::None(why) => Some(why.clone()),
        };
        Self {
            file: file.to_owned(),
            device: device.device,
            events: device.events,
            exact: not_exact_reason.is_none(),
            not_exact_reason,
            conf: device.conf.clone(),
            peak_reserved_bytes: device.peak_reserved,
            peak_reserved_under_capacity_bytes: device.peak_under_capacity,
            recorded_failures: device.recorded_failures,
            fails: device.fails(),
            sampled_stacks: device.sampled.as_ref().map(SampledStacks::new),
            assumptions: device.assumptions.clone(),
        }
    }
}

impl Failed {
    pub(super) fn new(failure: &Failure, top: usize) -> Self {
        let a = &failure.account;
        let contributing = failure
            .contributing
            .iter()
            .map(|(cause, bytes)| Contributing { cause: cause.name(), bytes: *bytes });
        let holder = |h: &vramwise_analyze::failure::Holder| HolderReport {
            place: h.place.clone(),
            bytes: h.bytes,
            blocks: h.blocks,
        };
        Self {
            event: failure.event,
            time_us: failure.time_us,
            recorded: failure.recorded,
            place: failure.place.clone(),
            asked_bytes: a.asked,
            live_requested_bytes: a.requested,
            pending_free_bytes: a.pending,
            free_own_bytes: a.free_own,
            largest_free_block_bytes: a.largest_own,
            free_other_streams_bytes: a.free_streams,
            free_other_pools_bytes: a.free_pools,
            limit_low_bytes: failure.limit.low,
            limit_high_bytes: failure.limit.high,
            limit_given: failure.limit.given,
            contributing: contributing.collect(),
            holders: failure.holders.iter().take(top).map(holder).collect(),
            pinned: failure.pinned.iter().map(Pinned::new).collect(),
        }
    }
}

impl Pinned {
    fn new(segment: &PinnedSegment) -> Self {
        let block = |b: &vramwise_analyze::failure::PinBlock| PinBlockReport {
            addr: b.addr,
            size_bytes: b.size,
            place: b.place.clone(),
            pending_free: b.pending,
        };
        Self {
            addr: segment.addr,
            size_bytes: segment.size,
            free_bytes: segment.free,
            largest_free_bytes: segment.largest_free,
            stream: segment.stream,
            pool: segment.pool.clone(),
            small: segment.small,
            blocks: segment.blocks.iter().map(block).collect(),
        }
    }
}

impl From<&Trial> for TrialReport {
    fn from(trial: &Trial) -> Self {
        Self {
            request_passes: trial.passes,
            later_failures: trial.later_failures,
            peak_reserved_bytes: trial.peak_reserved,
            limit_bytes: trial.limit,
            conf: trial.conf.clone(),
            address_orders: trial.orders,
        }
    }
}

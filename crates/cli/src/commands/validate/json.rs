//! The report of `vramwise validate --json`; its keys are a promise to scripts.

use std::collections::BTreeMap;

use serde::Serialize;
use vramwise_trace::{Description, DeviceDescription, Producer, Replayable, Warning};

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report<'a> {
    schema: u32,
    file: &'a str,
    /// Why the file is not from PyTorch's allocator; `null` if it seems to be.
    other_producer: Option<&'a str>,
    /// `pytorch`, or `vramwise` where that was in its place.
    allocator: &'static str,
    torch_version_guess: Option<String>,
    /// The settings string; `null` where the file does not say.
    settings: Option<&'a str>,
    /// Whether any device can be replayed: "yes", "partly" or "no".
    replayable: &'static str,
    devices: Vec<DeviceReport<'a>>,
    annotations: usize,
    stacks: usize,
    frames: usize,
    unknown_keys: BTreeMap<&'a str, u64>,
    warnings: Vec<WarningReport<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeviceReport<'a> {
    device: usize,
    events: usize,
    actions: BTreeMap<&'static str, u64>,
    events_with_stack: usize,
    time_span_us: Option<u64>,
    streams: usize,
    pools: usize,
    segments: usize,
    expandable_segments: usize,
    blocks: usize,
    reserved_bytes: u64,
    active_bytes: u64,
    /// Whether the history begins with an empty cache.
    starts_empty: bool,
    replayable: &'static str,
    /// Why not, or why only in part.
    reasons: &'a [String],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WarningReport<'a> {
    code: &'static str,
    message: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, description: &'a Description) -> Self {
        let best = description.devices.iter().map(|d| rank(&d.replayable)).max().unwrap_or(0);
        Self {
            schema: 1,
            file,
            other_producer: match &description.producer {
                Producer::PyTorch | Producer::Vramwise => None,
                Producer::Other(why) => Some(why),
            },
            allocator: crate::input::allocator_name(description.producer == Producer::Vramwise),
            torch_version_guess: description.version.map(|v| v.to_string()),
            settings: description.settings.as_deref(),
            replayable: NAMES[best],
            devices: description.devices.iter().map(device).collect(),
            annotations: description.annotations,
            stacks: description.stacks,
            frames: description.frames,
            unknown_keys: description.unknown_keys.iter().map(|(k, n)| (k.as_str(), *n)).collect(),
            warnings: description.warnings.iter().map(warning).collect(),
        }
    }
}

/// By rank.
const NAMES: [&str; 3] = ["no", "partly", "yes"];

fn rank(replayable: &Replayable) -> usize {
    match replayable {
        Replayable::No(_) => 0,
        Replayable::Partly(_) => 1,
        Replayable::Yes => 2,
    }
}

fn device(device: &DeviceDescription) -> DeviceReport<'_> {
    DeviceReport {
        device: device.device,
        events: device.events,
        actions: device.actions.iter().map(|(action, n)| (action.name(), *n)).collect(),
        events_with_stack: device.events_with_stack,
        time_span_us: device.time_span_us,
        streams: device.streams,
        pools: device.pools,
        segments: device.segments,
        expandable_segments: device.expandable_segments,
        blocks: device.blocks,
        reserved_bytes: device.reserved_bytes,
        active_bytes: device.active_bytes,
        starts_empty: device.facts.starts_empty(),
        replayable: NAMES[rank(&device.replayable)],
        reasons: match &device.replayable {
            Replayable::Yes => &[],
            Replayable::Partly(reasons) | Replayable::No(reasons) => reasons,
        },
    }
}

fn warning(warning: &Warning) -> WarningReport<'_> {
    WarningReport { code: warning.code, message: &warning.message }
}

//! What is in a snapshot, for people and for scripts.

use vramwise_types::{Action, Human, TorchVersion};

use crate::history::HistoryFacts;
use crate::snapshot::{DeviceTrace, Producer, Snapshot, Warning};

/// What a snapshot holds and what can be done with it.
#[derive(Clone, Debug)]
pub struct Description {
    /// Who wrote it.
    pub producer: Producer,
    /// Oldest PyTorch whose schema it is.
    pub version: Option<TorchVersion>,
    /// The settings string at the end of the recording, where the file has it.
    pub settings: Option<String>,
    /// One for each device in the file.
    pub devices: Vec<DeviceDescription>,
    /// Entries in `external_annotations`.
    pub annotations: usize,
    /// Distinct stacks.
    pub stacks: usize,
    /// Distinct frames.
    pub frames: usize,
    /// Keys that are not known, with how often each occurred.
    pub unknown_keys: Vec<(String, u64)>,
    /// The file's own warnings, and those of its histories.
    pub warnings: Vec<Warning>,
}

/// What a snapshot holds of one device.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// Number of the device.
    pub device: usize,
    /// Entries in the history.
    pub events: usize,
    /// Entries of each action that occurs.
    pub actions: Vec<(Action, u64)>,
    /// Distinct streams in history and segments.
    pub streams: usize,
    /// Distinct pools of segments, the default pool included.
    pub pools: usize,
    /// Segments at the end.
    pub segments: usize,
    /// Those of them that are expandable.
    pub expandable_segments: usize,
    /// Blocks at the end.
    pub blocks: usize,
    /// Bytes reserved at the end.
    pub reserved_bytes: u64,
    /// Bytes in active blocks at the end.
    pub active_bytes: u64,
    /// Events with a stack.
    pub events_with_stack: usize,
    /// Microseconds from the earliest to the latest entry, where entries have times.
    pub time_span_us: Option<u64>,
    /// Whether the history can be replayed.
    pub replayable: Replayable,
    /// What the history tells of itself.
    pub facts: HistoryFacts,
}

/// Whether a history can be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayable {
    /// From an empty cache on, and checked against the end.
    Yes,
    /// In part or under assumptions; the reasons.
    Partly(Vec<String>),
    /// Not; the reasons.
    No(Vec<String>),
}

impl DeviceDescription {
    fn of(number: usize, device: &DeviceTrace, foreign: Option<&str>) -> Self {
        let facts = HistoryFacts::of(device);
        let events = &device.events;
        let mut streams = events.streams.clone();
        streams.extend(device.segments.iter().map(|s| s.stream));
        streams.sort_unstable();
        streams.dedup();
        let mut pools: Vec<_> = device.segments.iter().map(|s| s.pool_id).collect();
        pools.sort_unstable();
        pools.dedup();
        let times = || events.time_us.iter().filter(|t| **t > 0);
        let span = times().max().zip(times().min()).map(|(last, first)| last - first);
        let actions = Action::NAMES.iter().map(|(action, _)| (*action, facts.count(*action)));
        Self {
            device: number,
            events: events.len(),
            actions: actions.filter(|(_, n)| *n > 0).collect(),
            streams: streams.len(),
            pools: pools.len(),
            segments: device.segments.len(),
            expandable_segments: device.segments.iter().filter(|s| s.is_expandable).count(),
            blocks: device.blocks.len(),
            reserved_bytes: facts.reserved,
            active_bytes: facts.active,
            events_with_stack: events.stack.iter().filter(|s| **s != crate::StackId::NONE).count(),
            time_span_us: span,
            replayable: replayable(device, &facts, foreign),
            facts,
        }
    }
}

fn replayable(device: &DeviceTrace, facts: &HistoryFacts, foreign: Option<&str>) -> Replayable {
    let allocs = facts.count(Action::Alloc);
    let frees = facts.count(Action::FreeRequested)
        + facts.count(Action::FreeCompleted)
        + facts.count(Action::Free);
    let growth = facts.count(Action::SegmentAlloc) + facts.count(Action::SegmentMap);
    if device.events.is_empty() {
        return Replayable::No(vec!["there is no history".into()]);
    }
    let mut never = Vec::new();
    if device.events.len() == 1 {
        never.push("the history is a single entry (only the state was recorded)".into());
    } else if allocs == 0 {
        never.push("no allocation is in the history".into());
    }
    if facts.double_allocs > 0 && frees == 0 {
        never.push("frees are not in the history (skip_actions)".into());
    }
    if !never.is_empty() {
        return Replayable::No(never);
    }
    let mut partly = Vec::new();
    if let Some(why) = foreign {
        partly.push(format!("it is no recording of PyTorch's caching allocator ({why})"));
    }
    if facts.reserved_before > 0 {
        let bytes = u64::try_from(facts.reserved_before).unwrap_or(u64::MAX);
        let bytes = Human(bytes);
        partly.push(match growth {
            0 => format!("no segment is taken in it, and {bytes} are reserved at the end"),
            _ => format!("{bytes} were reserved before it begins"),
        });
    }
    if facts.reserved_before < 0 {
        partly.push("it takes more memory from the driver than the segments show".into());
    }
    if facts.unpaired_frees > 0 {
        partly.push(format!(
            "{} frees are of blocks that it did not allocate (the first is event {})",
            facts.unpaired_frees,
            facts.first_unpaired.unwrap_or(0)
        ));
    }
    if facts.active_before > 0 {
        let bytes = Human(facts.active_before);
        partly.push(format!("{bytes} in use at the end were allocated before it begins"));
    }
    if facts.double_allocs > 0 {
        partly.push(format!(
            "{} allocations are at addresses that are in use (the first is event {})",
            facts.double_allocs,
            facts.first_double.unwrap_or(0)
        ));
    }
    if facts.live_not_shown > 0 && !device.segments.is_empty() {
        let n = facts.live_not_shown;
        partly.push(format!("{n} allocations that were not freed are not among the blocks"));
    }
    if device.segments.is_empty() && facts.reserved_before == 0 && growth == 0 {
        partly.push("it has neither segments nor entries about them".into());
    }
    if partly.is_empty() { Replayable::Yes } else { Replayable::Partly(partly) }
}

/// Describes a snapshot.
pub fn describe(snapshot: &Snapshot) -> Description {
    let foreign = match &snapshot.producer {
        // Its requests are as good as any.
        Producer::PyTorch | Producer::Vramwise => None,
        Producer::Other(why) => Some(why.as_str()),
    };
    let devices = snapshot.devices.iter().enumerate();
    let devices: Vec<_> =
        devices.map(|(i, device)| DeviceDescription::of(i, device, foreign)).collect();
    let mut warnings = snapshot.warnings.clone();
    for (description, device) in devices.iter().zip(&snapshot.devices) {
        warn(&mut warnings, description, device);
    }
    Description {
        producer: snapshot.producer.clone(),
        version: snapshot.version_guess,
        settings: snapshot.settings.as_ref().map(|s| s.conf.clone()),
        devices,
        annotations: snapshot.annotations.len(),
        stacks: snapshot.stacks.len(),
        frames: snapshot.stacks.frame_count(),
        unknown_keys: snapshot.unknown_keys.iter().map(|(k, n)| (k.clone(), *n)).collect(),
        warnings,
    }
}

/// Warnings about a history that take a walk through it.
fn warn(warnings: &mut Vec<Warning>, description: &DeviceDescription, device: &DeviceTrace) {
    let facts = &description.facts;
    let events = description.events;
    if events <= 1 {
        return;
    }
    let number = description.device;
    let mut push = |code, message| warnings.push(Warning { code, message });
    if !facts.starts_empty() {
        // Rings have round limits, recordings end anywhere.
        let round = events.is_multiple_of(1000) || (events >= 1024 && events.is_power_of_two());
        let counted = format!(
            "device {number}: the history does not start from an empty cache ({} were reserved and {} frees \
             are of earlier allocations)",
            Human(u64::try_from(facts.reserved_before).unwrap_or(0)),
            facts.unpaired_frees
        );
        if round {
            let why =
                format!("{counted}; with {events} entries its ring buffer has probably wrapped");
            push("ring-buffer-wrapped", why);
        } else {
            let why = format!("{counted}; recording began in mid-run, or its ring buffer wrapped");
            push("started-mid-run", why);
        }
    }
    if facts.unpaired_frees > 0 {
        let (n, first) = (facts.unpaired_frees, facts.first_unpaired.unwrap_or(0));
        let why = format!(
            "device {number}: {n} frees have no allocation before them (first: event {first})"
        );
        push("unpaired-frees", why);
    }
    if facts.double_allocs > 0 {
        let (n, first) = (facts.double_allocs, facts.first_double.unwrap_or(0));
        let why = format!(
            "device {number}: {n} allocations are at addresses in use (first: event {first})"
        );
        push("double-allocations", why);
    }
    let missing: Vec<_> = [
        (Action::Alloc, facts.unpaired_frees > 0),
        (Action::FreeRequested, facts.count(Action::FreeCompleted) > 0),
        (Action::FreeCompleted, facts.count(Action::FreeRequested) > 0),
        (Action::SegmentAlloc, facts.count(Action::SegmentFree) > 0),
        (Action::SegmentMap, facts.count(Action::SegmentUnmap) > 0),
    ]
    .into_iter()
    .filter(|(action, expected)| *expected && facts.count(*action) == 0)
    .map(|(action, _)| action.name())
    .collect();
    if !missing.is_empty() {
        let why = format!(
            "device {number}: the history has no {} entries; they may have been left out (skip_actions)",
            missing.join(", ")
        );
        push("missing-actions", why);
    }
    if device.segments.is_empty()
        && facts.count(Action::SegmentAlloc) > 0
        && facts.reserved_before < 0
    {
        let why = format!("device {number}: the segments are missing");
        push("no-segments", why);
    }
}

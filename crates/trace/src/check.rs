//! What a file lacks or what is odd in it, as far as it shows without a walk through the histories.

use vramwise_types::Action;

use crate::snapshot::{DeviceTrace, Producer, RecordedSettings, Snapshot, Warning};
use crate::version::Schema;

/// Names the producer and adds the warnings.
pub(crate) fn check(snapshot: &mut Snapshot, schema: &Schema) {
    snapshot.producer = producer(snapshot, schema);
    let drop_in = snapshot.producer == Producer::Vramwise;
    snapshot.devices.iter_mut().for_each(|device| device.drop_in = drop_in);
    let mut warnings = Vec::new();
    let mut push = |code, message: String| warnings.push(Warning { code, message });
    if let Producer::Other(why) = &snapshot.producer {
        push(
            "other-producer",
            format!("this is no recording of PyTorch's caching allocator: {why}"),
        );
    }
    let events: usize = snapshot.devices.iter().map(|d| d.events.len()).sum();
    if events == 0 {
        let why = match (schema.bare_list, schema.has_traces) {
            (true, _) => "it is a list of segments (torch.cuda.memory_snapshot())",
            (_, false) => "it has no 'device_traces' (traces were left out)",
            _ => "recording was not on (torch.cuda.memory._record_memory_history() starts it)",
        };
        push("no-history", format!("the file holds only a state and no history: {why}"));
    } else if snapshot.devices.iter().all(|d| d.events.len() <= 1) {
        let why = "each history is a single entry: only the state was recorded (enabled=\"state\")";
        push("state-only-history", why.into());
    }
    if events > 1 {
        if snapshot.devices.iter().all(|d| d.events.stack.is_empty()) {
            push("no-stacks", "no entry of the history has a stack (context=None)".into());
        }
        if snapshot.devices.iter().all(|d| d.events.time_us.is_empty()) {
            push("no-times", "the entries have no times (PyTorch 2.0)".into());
        }
    }
    if snapshot.settings.is_none() {
        push("no-settings", "the file does not say which allocator settings were in use".into());
    }
    if schema.bare_list
        || schema.block_history
        || snapshot.version_guess.is_some_and(|v| !v.at_least_2(1))
    {
        push(
            "old-schema",
            "the file is of PyTorch 2.0 or earlier; some fields are computed".into(),
        );
    }
    for (number, device) in snapshot.devices.iter().enumerate() {
        check_segments(&mut push, number, device);
    }
    let other: u64 = snapshot
        .unknown_keys
        .iter()
        .filter(|(key, _)| key.starts_with("action."))
        .map(|(_, n)| *n)
        .sum();
    if other > 0 {
        push("unknown-actions", format!("{other} entries have an action that is not known"));
    }
    snapshot.warnings.append(&mut warnings);
}

fn check_segments(
    push: &mut impl FnMut(&'static str, String),
    number: usize,
    device: &DeviceTrace,
) {
    let (mut gaps, mut sums) = (Counted::default(), Counted::default());
    let mut overlaps = Counted::default();
    let mut end_before = 0;
    for segment in &device.segments {
        let mut next = segment.address;
        for block in device.blocks_of(segment) {
            if block.address != next {
                gaps.note(block.address);
            }
            next = block.address.saturating_add(block.size);
        }
        if next != segment.address.saturating_add(segment.total_size) && !segment.blocks.is_empty()
        {
            sums.note(segment.address);
        }
        if segment.address < end_before {
            overlaps.note(segment.address);
        }
        end_before = end_before.max(segment.address.saturating_add(segment.total_size));
    }
    for (code, what, found) in [
        ("blocks-not-contiguous", "blocks do not begin where the one before ends", gaps),
        ("segment-size-mismatch", "segments are not as long as their blocks together", sums),
        ("segments-overlap", "segments overlap others", overlaps),
    ] {
        if let Some(first) = found.first {
            let n = found.count;
            push(code, format!("device {number}: {n} {what} (the first is at {first:#x})"));
        }
    }
}

#[derive(Default)]
struct Counted {
    count: u64,
    first: Option<u64>,
}

impl Counted {
    fn note(&mut self, address: u64) {
        self.count += 1;
        self.first.get_or_insert(address);
    }
}

/// What tells a file from one of PyTorch's caching allocator.
fn producer(snapshot: &Snapshot, schema: &Schema) -> Producer {
    const MIB_2: u64 = 2 << 20;
    if schema.profiler_made {
        let why = "its segments have no types and sizes, as PyTorch makes them from a profiler run";
        return Producer::Other(why.into());
    }
    if snapshot.settings.as_ref().is_some_and(RecordedSettings::of_drop_in) {
        return Producer::Vramwise;
    }
    if let Some(key) = &schema.foreign_conf {
        return Producer::Other(format!("its settings variable is {key}"));
    }
    for (number, device) in snapshot.devices.iter().enumerate() {
        let events = &device.events;
        for (i, (action, addr)) in events.action.iter().zip(&events.addr).enumerate() {
            if *action == Action::Alloc && !addr.is_multiple_of(512) {
                let why =
                    format!("on device {number}, event {i} is at {addr:#x}, no multiple of 512");
                return Producer::Other(why);
            }
        }
        for segment in &device.segments {
            if !segment.total_size.is_multiple_of(MIB_2) {
                let (address, size) = (segment.address, segment.total_size);
                let why = format!(
                    "on device {number}, the segment at {address:#x} has {size} bytes, no multiple of 2 MiB"
                );
                return Producer::Other(why);
            }
        }
    }
    Producer::PyTorch
}

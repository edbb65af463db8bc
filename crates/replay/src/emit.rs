//! A replay's end as a snapshot: the state and the history that the allocator would have left.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use vramwise_model::device::Device;
use vramwise_model::{Allocator, Entry, Recorder, SegmentView};
use vramwise_trace::{
    BlockState, DeviceTrace, Events, RecordedSettings, RecorderNote, Snapshot, StackId,
};
use vramwise_types::Action;

use crate::recording::Recording;
use crate::tables;
use crate::what_if::{Conditions, Observer, Outcome, what_if_observed};

/// Replays the recording's program under `conditions` and writes down what `torch.cuda.memory._snapshot()`
/// would have returned. Times and stacks come from the events of `source` that caused each entry.
pub fn replayed_snapshot(
    source: &Snapshot,
    device: u32,
    recording: &Recording,
    conditions: &Conditions,
) -> (Snapshot, Outcome) {
    let tape = Tape::default();
    let mut watch = Watch { tape: &tape, recording, causes: Vec::new(), segments: Vec::new() };
    let mut recorder = TapeRecorder(&tape);
    let outcome = what_if_observed(
        &recording.program,
        &recording.calls,
        conditions,
        &mut watch,
        &mut recorder,
    );
    let (causes, segments) = (watch.causes, watch.segments);
    let entries = tape.0.into_inner();
    let from = source.devices.get(device as usize);
    let events = events(&entries, &causes, from, recording);
    let mut devices = vec![DeviceTrace::default(); device as usize];
    devices.push(state(segments, events, &recording.program.streams, &recording.pool_ids));
    let snapshot = Snapshot {
        devices,
        settings: Some(settings(conditions)),
        annotations: source.annotations.clone(),
        // The changes of settings that it tells of are the recording's, not those of this replay.
        recorder: source.recorder.clone().map(|note| RecorderNote { settings: None, ..note }),
        strings: source.strings.clone(),
        stacks: source.stacks.clone(),
        version_guess: Some(conditions.version),
        ..Snapshot::default()
    };
    (snapshot, outcome)
}

/// The entries so far, shared by the recorder and the observer of one replay.
#[derive(Default)]
struct Tape(RefCell<Vec<Entry>>);

struct TapeRecorder<'a>(&'a Tape);

impl Recorder for TapeRecorder<'_> {
    fn record(&mut self, entry: Entry) {
        self.0.0.borrow_mut().push(entry);
    }
}

/// Notes which event caused each entry, and the state after the last operation.
struct Watch<'a> {
    tape: &'a Tape,
    recording: &'a Recording,
    causes: Vec<u32>,
    segments: Vec<SegmentView>,
}

impl Observer for Watch<'_> {
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        let program = &self.recording.program;
        self.causes.resize(self.tape.0.borrow().len(), program.events[op]);
        if op + 1 == program.ops.len() {
            self.segments = allocator.segments();
        }
        true
    }
}

fn events(
    entries: &[Entry],
    causes: &[u32],
    from: Option<&DeviceTrace>,
    recording: &Recording,
) -> Events {
    let source = from.map(|d| &d.events);
    let mut events = Events { streams: recording.program.streams.clone(), ..Events::default() };
    for (entry, cause) in entries.iter().zip(causes) {
        events.action.push(entry.action);
        events.addr.push(entry.addr);
        events.size.push(entry.size);
        events.stream.push(entry.stream);
        if let Some(source) = source {
            let cause = *cause as usize;
            if let Some(time) = source.time_us.get(cause) {
                events.time_us.push(*time);
            }
            if !source.stack.is_empty() {
                events.stack.push(source.stack_of(cause));
            }
        }
    }
    events
}

fn state(
    segments: Vec<SegmentView>,
    events: Events,
    streams: &[u64],
    pool_ids: &[(u64, u64)],
) -> DeviceTrace {
    let mut stacks: FxHashMap<u64, StackId> = FxHashMap::default();
    for i in 0..events.len() {
        if events.action[i] == Action::Alloc {
            stacks.insert(events.addr[i], events.stack_of(i));
        }
    }
    let mut device = tables::state(&segments, streams, pool_ids);
    for block in device.blocks.iter_mut().filter(|b| b.state != BlockState::Inactive) {
        block.stack = stacks.get(&block.address).copied().unwrap_or(StackId::NONE);
    }
    device.events = events;
    device
}

fn settings(conditions: &Conditions) -> RecordedSettings {
    let config = conditions.changes.last().map_or(&conditions.config, |(_, config)| config);
    let buckets = (0u32..).zip(config.roundup_power2_divisions);
    RecordedSettings {
        conf: config.to_conf_string(conditions.version),
        max_split_size: (config.max_split_size != u64::MAX).then_some(config.max_split_size),
        garbage_collection_threshold: config.garbage_collection_threshold,
        expandable_segments: config.expandable_segments,
        roundup_power2_divisions: buckets.map(|(i, d)| (1 << i, d)).collect(),
        other: Vec::new(),
    }
}

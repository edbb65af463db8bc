//! The figures from a replay that reproduces the recording.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use vramwise_model::device::Device;
use vramwise_model::stats::{Family, Stats};
use vramwise_model::{Allocator, NoHistory, SegmentView};
use vramwise_replay::{Conditions, Observer, Op, Recording, what_if_observed};
use vramwise_trace::{DeviceTrace, Events};
use vramwise_types::Action;

use super::curve::{Column, Curve, Level};
use super::state::State;

/// A replay that reproduced the recording, with its figures.
pub(super) struct Replayed<'a> {
    events: &'a Events,
    recording: &'a Recording,
    conditions: Conditions,
    pub(super) curve: Curve,
    pub(super) timeline: Vec<Column>,
}

impl<'a> Replayed<'a> {
    /// Replays the program; `None` where its counters are not those of the verification.
    ///
    /// Failed requests must fail again. A limit that was not given is inferred, and where the inferred
    /// one lets a request pass, the strictest one that allows what succeeded is tried.
    pub(super) fn new(
        device: &'a DeviceTrace,
        recording: &'a Recording,
        conditions: &Conditions,
        window: Option<&Range<usize>>,
        columns: usize,
    ) -> Option<Self> {
        let strictest = u64::try_from(recording.stats.all(Family::ReservedBytes).peak).ok();
        let limits = [recording.limit, strictest.filter(|_| !recording.ooms.is_empty())];
        limits.into_iter().find_map(|limit| {
            let conditions = Conditions { limit, ..conditions.clone() };
            Self::under(device, recording, conditions, window.cloned(), columns)
        })
    }

    fn under(
        device: &'a DeviceTrace,
        recording: &'a Recording,
        conditions: Conditions,
        window: Option<Range<usize>>,
        columns: usize,
    ) -> Option<Self> {
        let events = &device.events;
        let curve = Curve::new(events.len(), window, columns, Level::default());
        let mut watch = Watch { recording, events, curve, before: Level::default() };
        let (program, calls) = (&recording.program, &recording.calls);
        let outcome = what_if_observed(program, calls, &conditions, &mut watch, &mut NoHistory);
        let mut curve = watch.curve;
        let timeline = curve.finish();
        (outcome.stats == recording.stats).then_some(Self {
            events,
            recording,
            conditions,
            curve,
            timeline,
        })
    }

    /// The event that an operation ends with, as far as it matters: the allocation itself.
    pub(super) fn event_of(&self, op: usize) -> usize {
        event_of(self.recording, self.events, op)
    }

    /// The last operation that begins up to `event`; `None` where there is none.
    pub(super) fn op_at(&self, event: usize) -> Option<usize> {
        let begun = |first: &u32| *first as usize <= event;
        self.recording.program.events.partition_point(begun).checked_sub(1)
    }

    /// The states after these operations.
    pub(super) fn states(&self, ops: impl IntoIterator<Item = usize>) -> BTreeMap<usize, State> {
        let seen = ops.into_iter().map(|op| (op, Default::default())).collect();
        let mut capture = Capture { seen, left: 0, origins: Origins::default() };
        capture.left = capture.seen.len();
        let (program, calls) = (&self.recording.program, &self.recording.calls);
        if capture.left > 0 {
            let conditions = &self.conditions;
            what_if_observed(program, calls, conditions, &mut capture, &mut NoHistory);
        }
        let state = |(op, (views, origins)): (usize, (Vec<SegmentView>, Origins))| {
            (op, State::of_replay(&views, &origins, self.recording, self.events))
        };
        capture.seen.into_iter().map(state).collect()
    }
}

pub(crate) fn event_of(recording: &Recording, events: &Events, op: usize) -> usize {
    let program = &recording.program;
    let first = program.events.get(op).map_or(0, |e| *e as usize);
    if !matches!(program.ops.get(op), Some(Op::Malloc { .. } | Op::Failed { .. })) {
        return first;
    }
    let is_cause = |i: &usize| matches!(events.action[*i], Action::Alloc | Action::Oom);
    (first..events.len()).find(is_cause).unwrap_or(first)
}

fn level(stats: &Stats, value: impl Fn(vramwise_model::stats::Stat) -> i64) -> Level {
    let bytes = |family| u64::try_from(value(stats.all(family))).unwrap_or(0);
    Level {
        allocated: bytes(Family::AllocatedBytes),
        reserved: bytes(Family::ReservedBytes),
        active: bytes(Family::ActiveBytes),
        requested: bytes(Family::RequestedBytes),
    }
}

struct Watch<'a> {
    recording: &'a Recording,
    events: &'a Events,
    curve: Curve,
    before: Level,
}

impl Observer for Watch<'_> {
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        let stats = allocator.stats();
        let now = level(stats, |s| s.current);
        // Counters never fall behind their peak, so that a rise of the peak is this operation's.
        let peak = level(stats, |s| s.peak);
        let rose = now.allocated > self.before.allocated || now.reserved > self.before.reserved;
        let event = if rose {
            event_of(self.recording, self.events, op)
        } else {
            self.recording.program.events[op] as usize
        };
        self.before = now;
        self.curve.see(op, event, now, peak);
        true
    }
}

/// Which operation the blocks of a replay come from, by their addresses there. Those of the recording are others where
/// the driver's model places segments elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(FxHashMap<u64, usize>);

impl Origins {
    #[inline]
    pub(crate) fn placed(&mut self, op: usize, addr: u64) {
        self.0.insert(addr, op);
    }

    /// The event that allocated the block which lives at `addr`; `None` where that was before the recording.
    pub(crate) fn event(&self, addr: u64, recording: &Recording, events: &Events) -> Option<usize> {
        let op = *self.0.get(&addr)?;
        (op >= recording.program.preamble).then(|| event_of(recording, events, op))
    }
}

/// Keeps the segments after some operations, and ends the replay after the last of them.
struct Capture {
    seen: BTreeMap<usize, (Vec<SegmentView>, Origins)>,
    left: usize,
    origins: Origins,
}

impl Observer for Capture {
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        if let Some(seen) = self.seen.get_mut(&op) {
            let segments = allocator.segments();
            let in_use = segments.iter().flat_map(|segment| &segment.blocks);
            let known = in_use.filter_map(|b| Some((b.addr, *self.origins.0.get(&b.addr)?)));
            let origins = Origins(known.collect());
            *seen = (segments, origins);
            self.left -= 1;
        }
        self.left > 0
    }

    fn placed(&mut self, op: usize, addr: u64) {
        self.origins.placed(op, addr);
    }
}

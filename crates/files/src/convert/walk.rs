//! One walk through a history: what each allocation was freed by, and the levels over time.

use rustc_hash::FxHashMap;
use vramwise_trace::{BlockState, DeviceTrace, Events};
use vramwise_types::Action;

/// For each event the one that gave its block back; `None` where none did or it is no allocation.
pub(super) fn freed_by(events: &Events) -> Vec<Option<u64>> {
    let mut freed_by = vec![None; events.len()];
    let mut live: FxHashMap<u64, usize> = FxHashMap::default();
    for i in 0..events.len() {
        match events.action[i] {
            Action::Alloc => _ = live.insert(events.addr[i], i),
            Action::FreeRequested | Action::Free | Action::FreeCompleted => {
                // A completion after its request finds nothing any more.
                if let Some(alloc) = live.remove(&events.addr[i]) {
                    freed_by[alloc] = Some(i as u64);
                }
            }
            _ => {}
        }
    }
    freed_by
}

/// Time of each event in microseconds since the first; where entries have no times, its number.
pub(super) fn times(events: &Events) -> Vec<u64> {
    if events.time_us.len() != events.len() {
        return (0..events.len() as u64).collect();
    }
    let first = events.time_us.iter().copied().filter(|t| *t > 0).min().unwrap_or(0);
    events.time_us.iter().map(|t| t.saturating_sub(first)).collect()
}

/// Bytes reserved and requested before the first event: what is there at the end less what the history
/// added, and never so little that the history would give back more than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) reserved: i128,
    pub(super) requested: i128,
}

/// How an event changes the levels: bytes reserved, bytes requested by the program.
pub(super) fn change(events: &Events, i: usize, has_requested: bool) -> (i128, i128) {
    let size = i128::from(events.size[i]);
    match events.action[i] {
        action if action.is_growth() => (size, 0),
        action if action.is_release() => (-size, 0),
        Action::Alloc => (0, size),
        Action::FreeRequested | Action::Free => (0, -size),
        Action::FreeCompleted if !has_requested => (0, -size),
        _ => (0, 0),
    }
}

/// Whether the file writes `free_requested`; some producers write completions only.
pub(super) fn has_requested(events: &Events) -> bool {
    events.action.iter().any(|a| matches!(a, Action::FreeRequested | Action::Free))
}

pub(super) fn start(device: &DeviceTrace) -> Start {
    let events = &device.events;
    let requests = has_requested(events);
    let (mut reserved, mut requested) = (0i128, 0i128);
    let mut lowest = (0i128, 0i128);
    for i in 0..events.len() {
        let (r, q) = change(events, i, requests);
        (reserved, requested) = (reserved + r, requested + q);
        lowest = (lowest.0.min(reserved), lowest.1.min(requested));
    }
    let held: i128 = device.segments.iter().map(|s| i128::from(s.total_size)).sum();
    let used = device.blocks.iter().filter(|b| b.state == BlockState::ActiveAllocated);
    let used: i128 = used.map(|b| i128::from(b.requested_size)).sum();
    Start {
        reserved: (held - reserved).max(-lowest.0),
        requested: (used - requested).max(-lowest.1),
    }
}

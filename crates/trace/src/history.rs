//! Facts about a device's history: what it counts, and whether it is whole.

use rustc_hash::FxHashMap;
use vramwise_types::Action;

use crate::snapshot::{BlockState, DeviceTrace};

/// What one pass over a history tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFacts {
    /// Number of entries of each action, in the order of [`Action::NAMES`].
    pub counts: [u64; Action::NAMES.len()],
    /// Frees of addresses that the history did not allocate, or freed already.
    pub unpaired_frees: u64,
    /// The first such entry.
    pub first_unpaired: Option<usize>,
    /// Allocations of addresses that were in use.
    pub double_allocs: u64,
    /// The first such entry.
    pub first_double: Option<usize>,
    /// Bytes reserved before the history began: what is reserved at the end, less what the history
    /// took from the driver, plus what it gave back. Negative where the history took more than there is.
    pub reserved_before: i128,
    /// Bytes of blocks that are in use at the end and that the history did not allocate.
    pub active_before: u64,
    /// Allocations that are live at the end of the history and that no active block shows.
    pub live_not_shown: u64,
    /// Allocated addresses that are no multiple of 512.
    pub odd_addresses: u64,
    /// Bytes reserved at the end.
    pub reserved: u64,
    /// Bytes in active blocks at the end.
    pub active: u64,
}

/// State of an address that is in use; addresses that are free are not kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Pending,
}

impl HistoryFacts {
    /// Entries of one action.
    pub fn count(&self, action: Action) -> u64 {
        self.counts[action as usize]
    }

    /// Whether the history starts with nothing reserved and nothing in use, as far as it tells.
    pub fn starts_empty(&self) -> bool {
        self.reserved_before == 0 && self.unpaired_frees == 0 && self.active_before == 0
    }

    /// Walks through the history of a device.
    pub fn of(device: &DeviceTrace) -> Self {
        let events = &device.events;
        let mut facts = Self::default();
        for action in &events.action {
            facts.counts[*action as usize] += 1;
        }
        let requests = facts.count(Action::FreeRequested) > 0;
        let mut states: FxHashMap<u64, State> = FxHashMap::default();
        let entries = events.action.iter().zip(&events.addr).zip(&events.size);
        for (i, ((action, addr), size)) in entries.enumerate() {
            match action {
                Action::Alloc => {
                    facts.odd_addresses += u64::from(!addr.is_multiple_of(512));
                    if states.insert(*addr, State::Live) == Some(State::Live) {
                        facts.double_allocs += 1;
                        facts.first_double.get_or_insert(i);
                    }
                }
                Action::FreeRequested => {
                    let before = states.insert(*addr, State::Pending);
                    facts.freed(i, before);
                }
                Action::FreeCompleted | Action::Free => {
                    let before = states.remove(addr);
                    // The request was counted already, or is before the beginning.
                    if *action == Action::Free || !requests {
                        facts.freed(i, before);
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap => {
                    facts.reserved_before -= i128::from(*size);
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    facts.reserved_before += i128::from(*size);
                }
                _ => {}
            }
        }
        facts.end(device, &states);
        facts
    }

    fn freed(&mut self, i: usize, before: Option<State>) {
        if before != Some(State::Live) {
            self.unpaired_frees += 1;
            self.first_unpaired.get_or_insert(i);
        }
    }

    /// Compares the end of the history with the segments.
    fn end(&mut self, device: &DeviceTrace, states: &FxHashMap<u64, State>) {
        let mut shown = 0;
        for block in device.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
            self.active = self.active.saturating_add(block.size);
            match states.get(&block.address) {
                Some(State::Live) => shown += 1,
                Some(State::Pending) => {}
                None => self.active_before = self.active_before.saturating_add(block.size),
            }
        }
        let live = states.values().filter(|s| **s == State::Live).count() as u64;
        self.live_not_shown = live.saturating_sub(shown);
        for segment in &device.segments {
            self.reserved = self.reserved.saturating_add(segment.total_size);
        }
        self.reserved_before += i128::from(self.reserved);
    }
}

//! Segments that few bytes keep from going back to the driver.
//!
//! A segment counts as pinned where it is in use and at least half of it is free. It is put down to
//! the group that holds most of it. Expandable segments are left out: their free pages can go back
//! one by one.

use std::collections::BTreeMap;

use vramwise_trace::BlockState;

use super::When;
use super::holders::{Namer, groups};
use super::state::{Piece, State};

/// The pinned segments of one moment.
#[derive(Clone, Debug)]
pub struct PinnedAt {
    /// What the moment is: `peak`, `out of memory`, `end` or `event`.
    pub moment: &'static str,
    /// The moment.
    pub when: When,
    /// By who holds them, the most free bytes first.
    pub pins: Vec<Pin>,
}

/// Pinned segments of one holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Who holds most of each segment.
    pub label: String,
    /// The segments.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Their free bytes.
    pub free_bytes: u64,
    /// Bytes in use in them.
    pub held_bytes: u64,
    /// Blocks in use in them.
    pub blocks: u64,
    /// How many of these bytes are other holders'.
    pub others_bytes: u64,
}

/// The pinned segments by who holds most of each.
pub(super) fn pins(state: &State, namer: &mut Namer<'_>) -> Vec<Pin> {
    let mut pins: BTreeMap<String, Pin> = BTreeMap::new();
    for segment in state.segments.iter().flatten().filter(|s| !s.expandable) {
        let blocks = &state.blocks[segment.blocks.clone()];
        let used = |b: &&Piece| b.state != BlockState::Inactive;
        let held = blocks.iter().filter(used).map(|b| b.size).fold(0, u64::saturating_add);
        if held == 0 || held > segment.size / 2 {
            continue;
        }
        let holders = groups(blocks.iter().filter(used), namer);
        let Some(first) = holders.first() else { continue };
        let pin = pins.entry(first.label.clone()).or_default();
        pin.label.clone_from(&first.label);
        pin.segments += 1;
        pin.segment_bytes = pin.segment_bytes.saturating_add(segment.size);
        pin.free_bytes = pin.free_bytes.saturating_add(segment.size - held);
        pin.held_bytes = pin.held_bytes.saturating_add(held);
        pin.others_bytes = pin.others_bytes.saturating_add(held.saturating_sub(first.bytes));
        pin.blocks += holders.iter().map(|h| h.blocks).sum::<u64>();
    }
    let mut pins: Vec<Pin> = pins.into_values().collect();
    pins.sort_by_key(|p| std::cmp::Reverse(p.free_bytes));
    pins
}

//! Free memory inside what the allocator holds, per pool and stream.

use std::collections::BTreeMap;

use vramwise_trace::BlockState;

use super::state::State;

/// Free memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// Free bytes in segments that something uses: they cannot go back to the driver.
    pub split: u64,
    /// Bytes of segments that nothing uses.
    pub cached: u64,
    /// The largest free block.
    pub largest: u64,
    /// The same by pool, half and stream, ascending.
    pub pools: Vec<PoolRow>,
}

/// One stream's part of one half of a pool: free memory is never shared between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of FreeMemory and Memory, for this row
pub struct PoolRow {
    pub pool: (u64, u64),
    pub small: bool,
    pub stream: u64,
    pub segments: u64,
    pub reserved: u64,
    pub allocated: u64,
    pub pending: u64,
    pub split: u64,
    pub cached: u64,
    pub largest: u64,
}

/// The free memory of a state, where its segments are known.
pub(super) fn free_memory(state: &State) -> Option<FreeMemory> {
    let segments = state.segments.as_ref()?;
    let mut rows: BTreeMap<((u64, u64), bool, u64), PoolRow> = BTreeMap::new();
    for segment in segments {
        let row = rows.entry((segment.pool, !segment.small, segment.stream)).or_default();
        (row.pool, row.small, row.stream) = (segment.pool, segment.small, segment.stream);
        row.segments += 1;
        row.reserved = row.reserved.saturating_add(segment.size);
        let blocks = &state.blocks[segment.blocks.clone()];
        let unused = blocks.iter().all(|b| b.state == BlockState::Inactive);
        for block in blocks {
            let sum = match block.state {
                BlockState::ActiveAllocated => &mut row.allocated,
                BlockState::ActivePendingFree => &mut row.pending,
                BlockState::Inactive => {
                    row.largest = row.largest.max(block.size);
                    if unused { &mut row.cached } else { &mut row.split }
                }
            };
            *sum = sum.saturating_add(block.size);
        }
    }
    let pools: Vec<PoolRow> = rows.into_values().collect();
    let sum = |f: fn(&PoolRow) -> u64| pools.iter().map(f).fold(0, u64::saturating_add);
    Some(FreeMemory {
        split: sum(|r| r.split),
        cached: sum(|r| r.cached),
        largest: pools.iter().map(|r| r.largest).max().unwrap_or(0),
        pools,
    })
}

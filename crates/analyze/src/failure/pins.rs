//! Who held the memory when a request failed, and which blocks keep half-empty segments.

use vramwise_trace::{BlockState, Snapshot};

use crate::peak::holders::{By, Namer, groups, pool_name};
use crate::peak::state::State;

/// Memory of one place of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The place.
    pub place: String,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
}

/// A segment that is in use and partly free, so that its free part cannot go back to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedSegment {
    /// Its first byte.
    pub addr: u64,
    /// Its bytes.
    pub size: u64,
    /// Free bytes in it.
    pub free: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// The stream's handle.
    pub stream: u64,
    /// Its pool, in words.
    pub pool: String,
    /// Whether it is of the small pool (blocks up to 1 MiB).
    pub small: bool,
    /// The blocks that keep it, most bytes first.
    pub blocks: Vec<PinBlock>,
}

/// A block that keeps a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinBlock {
    /// Its first byte.
    pub addr: u64,
    /// Its bytes.
    pub size: u64,
    /// The line that allocated it.
    pub place: String,
    /// Whether it only waits for other streams.
    pub pending: bool,
}

/// The holders of a state, by the user's line.
pub(super) fn holders(snapshot: &Snapshot, state: &State, frames: usize) -> Vec<Holder> {
    let mut namer = Namer::new(snapshot, By::Stack, frames);
    let holder =
        |g: crate::peak::Group| Holder { place: g.label, bytes: g.bytes, blocks: g.blocks };
    groups(state.allocated(), &mut namer).into_iter().map(holder).collect()
}

/// The segments that are in use and partly free.
pub(super) fn pinned(snapshot: &Snapshot, state: &State, frames: usize) -> Vec<PinnedSegment> {
    let mut namer = Namer::new(snapshot, By::Stack, frames);
    let mut found = Vec::new();
    for segment in state.segments.iter().flatten().filter(|s| !s.expandable) {
        let pieces = &state.blocks[segment.blocks.clone()];
        let free = |b: &&crate::peak::state::Piece| b.state == BlockState::Inactive;
        let free_bytes: u64 = pieces.iter().filter(free).map(|b| b.size).sum();
        if free_bytes == 0 || free_bytes == segment.size {
            continue;
        }
        let mut blocks: Vec<PinBlock> = pieces
            .iter()
            .filter(|b| b.state != BlockState::Inactive)
            .map(|b| PinBlock {
                addr: b.addr,
                size: b.size,
                place: namer.name(b),
                pending: b.state == BlockState::ActivePendingFree,
            })
            .collect();
        blocks.sort_by_key(|b| (std::cmp::Reverse(b.size), b.addr));
        found.push(PinnedSegment {
            addr: pieces.first().map_or(0, |b| b.addr),
            size: segment.size,
            free: free_bytes,
            largest_free: pieces.iter().filter(free).map(|b| b.size).max().unwrap_or(0),
            stream: segment.stream,
            pool: pool_name(segment.pool),
            small: segment.small,
            blocks,
        });
    }
    found.sort_by_key(|s| (std::cmp::Reverse(s.free), s.addr));
    found
}

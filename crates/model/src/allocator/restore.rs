//! Starting from a given state instead of an empty cache: for recordings that began in mid-run.

use super::{Allocator, Reservation, StreamIndex, index, signed};
use crate::block::{ALLOCATED, Block, BlockId, EXPANDABLE, MAPPED, NONE};
use crate::device::Device;
use crate::pool::PoolIndex;
use crate::size;
use crate::state::{BlockState, BlockView, SegmentView};
use crate::stats::Family;

/// An active block that was put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its stream.
    pub stream: StreamIndex,
    /// Its pool.
    pub pool: PoolIndex,
    /// Whether it is given back already and waits for other streams.
    pub pending: bool,
}

impl<D: Device> Allocator<D> {
    /// Fills an empty allocator with these segments (ascending by address, blocks tiling them). Counters
    /// count from here: what was before is not known. Returns the active blocks in the same order.
    ///
    /// Mapped runs of expandable segments that follow each other and share pool, size class and stream
    /// are taken for one reservation, as far as they fit into one.
    pub fn restore(&mut self, segments: &[SegmentView]) -> Vec<(BlockId, Restored)> {
        let mut active = Vec::new();
        let mut open: Vec<(u32, u32)> = Vec::new(); // (reservation, last block)
        for segment in segments.iter().filter(|s| !s.blocks.is_empty()) {
            let half = segment.pool.half(segment.small);
            let mut prev = NONE;
            let mut reservation = NONE;
            // How old a segment is, is not known: they are taken to have been made in the order given.
            let own_rank = self.next_rank(segment.addr);
            if segment.expandable {
                (reservation, prev) = self.restored_reservation(segment, &mut open);
            } else {
                self.stats.change(Family::Segment, segment.small, 1);
            }
            for view in &segment.blocks {
                let rank = if prev == NONE { own_rank } else { self.blocks[prev].rank };
                let id = self.blocks.add(Block {
                    addr: view.addr,
                    rank,
                    size: view.size,
                    requested: view.requested,
                    stamp: 0,
                    prev,
                    next: NONE,
                    half,
                    stream: segment.stream.0,
                    reservation,
                    events: 0,
                    uses: 0,
                    flags: MAPPED | if segment.expandable { EXPANDABLE } else { 0 },
                });
                if prev != NONE {
                    self.blocks[prev].next = id;
                }
                prev = id;
                self.settle(id, view, segment.small);
                if view.state != BlockState::Inactive {
                    let pending = view.state == BlockState::ActivePendingFree;
                    active.push((
                        BlockId(id),
                        Restored { stream: segment.stream, pool: segment.pool, pending },
                    ));
                }
            }
            if let Some(entry) = open.iter_mut().find(|(r, _)| *r == reservation) {
                entry.1 = prev;
            }
            self.reserved += segment.size;
            self.stats.change(Family::ReservedBytes, segment.small, signed(segment.size));
            self.pools[segment.pool.0 as usize].segments += 1;
        }
        self.close_reservations(&open);
        self.count_restored_splits();
        // What was done before is not known: sums begin at 0, only what is there counts.
        self.stats.reset_accumulated();
        self.stats.reset_peak();
        active
    }

    fn settle(&mut self, id: u32, view: &BlockView, small: bool) {
        let (size, requested) = (signed(view.size), signed(view.requested));
        match view.state {
            BlockState::Inactive => return self.insert_free(id),
            BlockState::ActiveAllocated => {
                self.blocks[id].flags |= ALLOCATED;
                self.stats.change(Family::Allocation, small, 1);
                self.stats.change(Family::AllocatedBytes, small, size);
            }
            BlockState::ActivePendingFree => {
                self.blocks[id].events = 1;
                self.told.push(id);
            }
        }
        self.stats.change(Family::Active, small, 1);
        self.stats.change(Family::ActiveBytes, small, size);
        self.stats.change(Family::RequestedBytes, small, requested);
        if view.size >= self.config.max_split_size && view.state == BlockState::ActiveAllocated {
            self.stats.oversize_allocations.change(1);
        }
    }

    /// The reservation that a mapped run belongs to, and the block in front of it.
    fn restored_reservation(
        &mut self,
        segment: &SegmentView,
        open: &mut Vec<(u32, u32)>,
    ) -> (u32, u32) {
        let half = segment.pool.half(segment.small);
        let known = open.last().copied().filter(|&(reservation, last)| {
            let block = &self.blocks[last];
            let Reservation { base, granule, .. } = self.reservations[reservation as usize];
            block.half == half
                && block.stream == segment.stream.0
                && segment.addr + segment.size - base <= self.reservation_length(granule)
        });
        if let Some((reservation, last)) = known {
            let end = self.blocks[last].end();
            if end < segment.addr {
                let gap = self.unmapped_piece(end, segment.addr - end, last, NONE);
                return (reservation, gap);
            }
            return (reservation, last);
        }
        let granule =
            if segment.small { size::SMALL_SEGMENT } else { self.config.large_segment_size };
        let reservation = index(self.reservations.len());
        self.reservations.push(Reservation { base: segment.addr, size: 0, granule, live: true });
        open.push((reservation, NONE));
        (reservation, NONE)
    }

    /// Behind its last mapped run a reservation goes on unmapped, but not into the next one: where it
    /// began, before its first mapped run, is not known.
    fn close_reservations(&mut self, open: &[(u32, u32)]) {
        for (i, &(reservation, last)) in open.iter().enumerate() {
            let Reservation { base, granule, .. } = self.reservations[reservation as usize];
            let used = self.blocks[last].end() - base;
            let room = open
                .get(i + 1)
                .map_or(u64::MAX, |(next, _)| self.reservations[*next as usize].base - base);
            let length = self.reservation_length(granule).min(room / granule * granule).max(used);
            if used < length {
                self.unmapped_piece(base + used, length - used, last, NONE);
            }
            self.reservations[reservation as usize].size = length;
        }
    }

    fn unmapped_piece(&mut self, addr: u64, size: u64, prev: u32, next: u32) -> u32 {
        let piece = Block {
            addr,
            size,
            requested: 0,
            prev,
            next,
            events: 0,
            uses: 0,
            flags: EXPANDABLE,
            ..self.blocks[prev].clone()
        };
        let id = self.blocks.add(piece);
        self.blocks[prev].next = id;
        self.insert_unmapped(id);
        id
    }

    fn count_restored_splits(&mut self) {
        let split: Vec<(bool, u64)> = self
            .blocks
            .iter()
            .filter(|(_, b)| b.has(crate::block::FREE) && b.is_split() && !b.has(EXPANDABLE))
            .map(|(_, b)| (b.half.is_multiple_of(2), b.size))
            .collect();
        for (small, size) in split {
            self.stats.change(Family::InactiveSplit, small, 1);
            self.stats.change(Family::InactiveSplitBytes, small, signed(size));
        }
    }
}

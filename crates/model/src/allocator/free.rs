//! `free` and what follows when nobody uses the block any more (specification §5.1, §5.4).

use vramwise_types::Action;

use super::{Allocator, signed};
use crate::block::{ALLOCATED, BlockId, EXPANDABLE, NONE};
use crate::device::Device;
use crate::history::Recorder;
use crate::stats::Family;

impl<D: Device> Allocator<D> {
    /// Gives a block back. If other streams used it, it stays pending until their work is done.
    ///
    /// # Panics
    /// If the block is not allocated: the caller holds a handle that it already gave back.
    pub fn free(&mut self, block: BlockId, history: &mut impl Recorder) {
        if block == BlockId::NULL {
            return;
        }
        self.request_free(block.0, history);
        if self.blocks[block.0].uses == 0 {
            self.complete_free(block.0, history);
        } else if self.is_routing() {
            self.deferred.push(block.0);
        } else {
            self.record_events(block.0);
        }
    }

    /// Gives a block back that stays pending until [`Allocator::complete`] or a flush of the cache:
    /// for replays, where the history tells when other streams were done.
    ///
    /// # Panics
    /// As [`Allocator::free`].
    pub fn free_pending(&mut self, block: BlockId, history: &mut impl Recorder) {
        if block == BlockId::NULL {
            return;
        }
        self.request_free(block.0, history);
        self.forget_uses(block.0);
        self.blocks[block.0].events += 1;
        self.told.push(block.0);
    }

    /// Completes a free begun by [`Allocator::free_pending`]; `false` if it was already complete.
    pub fn complete(&mut self, block: BlockId, history: &mut impl Recorder) -> bool {
        let Some(at) = self.told.iter().position(|id| *id == block.0) else { return false };
        self.told.remove(at);
        self.finish_event(block.0, history);
        true
    }

    /// Says in which order a flush completes pending frees; those not named follow in their own order.
    pub fn order_pending(&mut self, first: &[BlockId]) {
        let rank = |id: &u32| first.iter().position(|b| b.0 == *id).unwrap_or(first.len());
        self.told.sort_by_key(rank);
    }

    fn request_free(&mut self, id: u32, history: &mut impl Recorder) {
        let block = &mut self.blocks[id];
        assert!(block.flags & ALLOCATED != 0, "a block is given back once");
        block.flags &= !ALLOCATED;
        let (size, small) = (block.size, block.half.is_multiple_of(2));
        self.stats.change(Family::Allocation, small, -1);
        self.stats.change(Family::AllocatedBytes, small, -signed(size));
        self.record(history, Action::FreeRequested, &self.blocks[id]);
        if size >= self.config.max_split_size {
            self.stats.oversize_allocations.change(-1);
        }
    }

    /// One event of a pending block passed.
    pub(super) fn finish_event(&mut self, id: u32, history: &mut impl Recorder) {
        self.blocks[id].events -= 1;
        if self.blocks[id].events == 0 {
            self.complete_free(id, history);
        }
    }

    /// §5.4: the block becomes reusable.
    pub(super) fn complete_free(&mut self, id: u32, history: &mut impl Recorder) {
        self.record(history, Action::FreeCompleted, &self.blocks[id]);
        let block = &self.blocks[id];
        let (size, requested) = (block.size, block.requested);
        let (small, ordinary) = (block.half.is_multiple_of(2), !block.has(EXPANDABLE));
        let (prev, next) = (block.prev, block.next);
        let (before, behind) = (self.absorb(id, prev), self.absorb(id, next));
        self.insert_free(id);
        let stats = &mut self.stats;
        stats.change(Family::Active, small, -1);
        stats.change(Family::ActiveBytes, small, -signed(size));
        stats.change(Family::RequestedBytes, small, -signed(requested));
        if !ordinary {
            return;
        }
        // The net change counts once, so that peaks and sums see no intermediate state (§7.3).
        let mut count = -i64::from(before > 0) - i64::from(behind > 0);
        let mut bytes = -signed(before) - signed(behind);
        let block = &self.blocks[id];
        if block.prev != NONE || block.next != NONE {
            count += 1;
            bytes += signed(block.size);
        }
        if count != 0 {
            stats.change(Family::InactiveSplit, small, count);
        }
        if bytes != 0 {
            stats.change(Family::InactiveSplitBytes, small, bytes);
        }
    }
}

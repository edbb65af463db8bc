//! §5.1–§5.5: free, uses on other streams, events.

use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_types::Action;

use super::{Reference, signed};

impl<D: Device> Reference<D> {
    /// §5.1.
    pub fn free(&mut self, addr: u64) {
        if addr == 0 {
            return;
        }
        self.request_free(addr);
        if self.block(addr).uses.is_empty() {
            self.complete_free(addr);
        } else if self.is_routing() {
            self.took("free deferred");
            self.deferred.push(addr);
        } else {
            self.record_events(addr);
        }
    }

    /// A free whose completion is told from outside.
    pub fn free_pending(&mut self, addr: u64) {
        self.request_free(addr);
        let block = self.block_mut(addr);
        block.uses.clear();
        block.events += 1;
        self.told.push(addr);
    }

    /// Completes a free of [`Reference::free_pending`]; whether it was still pending.
    pub fn complete(&mut self, addr: u64) -> bool {
        let pending = self.told.contains(&addr);
        if pending {
            self.told.retain(|a| *a != addr);
            self.passed(addr);
        }
        pending
    }

    fn request_free(&mut self, addr: u64) {
        let block = self.block_mut(addr);
        assert!(block.allocated, "{addr:#x} is freed twice");
        block.allocated = false;
        let (size, requested) = (block.size, block.requested);
        let (small, stream) = (self.segment(addr).small, self.segment(addr).stream);
        self.counters.add(Family::Allocation, small, -1);
        self.counters.add(Family::AllocatedBytes, small, -signed(size));
        self.emit(Action::FreeRequested, addr, requested, stream);
        if size >= self.config.max_split_size {
            self.counters.oversize_allocations.add(-1);
        }
    }

    /// §5.2: the use set, which ignores the block's own stream.
    pub fn record_stream(&mut self, addr: u64, stream: u32) {
        let routing = self.is_routing();
        if self.segment(addr).stream == stream {
            return;
        }
        let uses = &mut self.block_mut(addr).uses;
        if !uses.iter().any(|(s, _)| *s == stream) {
            uses.push((stream, routing));
        }
    }

    fn record_events(&mut self, addr: u64) {
        let uses = std::mem::take(&mut self.block_mut(addr).uses);
        if uses.len() > 1 {
            self.took("several events for one block");
        }
        for (stream, _) in uses {
            let event = self.device.record_event(self.handles[stream as usize]);
            self.block_mut(addr).events += 1;
            self.events.push((stream, event, addr));
        }
    }

    fn passed(&mut self, addr: u64) {
        let block = self.block_mut(addr);
        block.events -= 1;
        if block.events == 0 {
            self.took("completed after events");
            self.complete_free(addr);
        }
    }

    /// §5.3.
    pub fn process_events(&mut self) {
        self.settle_deferred();
        for stream in 0..self.handles.len() {
            while let Some(i) = self.events.iter().position(|(s, ..)| *s as usize == stream) {
                let (_, event, addr) = self.events[i];
                if !self.device.event_done(event) {
                    break;
                }
                self.events.remove(i);
                self.passed(addr);
            }
        }
    }

    /// §5.6: waits for the events of every block, or of one pool's blocks.
    pub(super) fn synchronise(&mut self, pool: Option<usize>) {
        self.settle_deferred();
        for stream in 0..self.handles.len() {
            let mine = |r: &Self, addr| pool.is_none_or(|p| r.segment(addr).pool == p);
            while let Some(i) = (self.events.iter())
                .position(|(s, _, addr)| *s as usize == stream && mine(self, *addr))
            {
                let (_, _, addr) = self.events.remove(i);
                self.passed(addr);
            }
        }
        for addr in self.told.clone() {
            if pool.is_none_or(|p| self.segment(addr).pool == p) {
                self.told.retain(|a| *a != addr);
                self.passed(addr);
            }
        }
    }

    /// §5.5: after routing, uses recorded during it are dropped, the others get events.
    fn settle_deferred(&mut self) {
        if self.is_routing() {
            return;
        }
        for addr in std::mem::take(&mut self.deferred) {
            self.block_mut(addr).uses.retain(|(_, routing)| !routing);
            if self.block(addr).uses.is_empty() {
                self.took("deferred free completed without events");
                self.complete_free(addr);
            } else {
                self.record_events(addr);
            }
        }
    }

    /// §5.4, §7.3.
    fn complete_free(&mut self, addr: u64) {
        let (size, requested) = (self.block(addr).size, self.block(addr).requested);
        let segment = self.segment(addr);
        let (small, stream) = (segment.small, segment.stream);
        let ordinary = segment.granule.is_none();
        self.emit(Action::FreeCompleted, addr, requested, stream);
        let (addr, k, s) = self.merge(addr);
        if k == 2 {
            self.took("merged on both sides");
        }
        self.stamp(addr);
        self.counters.add(Family::Active, small, -1);
        self.counters.add(Family::ActiveBytes, small, -signed(size));
        self.counters.add(Family::RequestedBytes, small, -signed(requested));
        if ordinary {
            let (mut count, mut bytes) = (-k, -s);
            if self.has_neighbour(addr) {
                count += 1;
                bytes += signed(self.block(addr).size);
            }
            self.counters.add(Family::InactiveSplit, small, count);
            self.counters.add(Family::InactiveSplitBytes, small, bytes);
        }
    }
}

//! Blocks that several streams use: freed only when all of them are done.

use std::collections::VecDeque;

use super::{BlockState, Change, Heap};
use crate::block::Kind;
use crate::device::Device;

impl<D: Device> Heap<D> {
    /// A live block is used on this stream as well; `false` = no block starts at the address.
    pub fn record_stream(&mut self, address: u64, stream: u64) -> bool {
        let Some(id) = self.live_block(address) else { return false };
        let own = self.regions[self.blocks[id].region as usize].stream;
        if stream != own {
            let uses = self.uses.entry(id).or_default();
            if !uses.contains(&stream) {
                uses.push(stream);
            }
            self.blocks[id].shared = true;
        }
        true
    }

    /// Frees a block that other streams use: it waits for an event on each.
    pub(super) fn free_shared(&mut self, id: u32) {
        self.blocks[id].kind = Kind::Pending;
        self.blocks[id].shared = false;
        if self.captures > 0 {
            self.deferred.push(id);
        } else {
            self.await_streams(id);
        }
    }

    /// Records an event on each stream that used a freed block. A stream that can't be asked now stays for later.
    fn await_streams(&mut self, id: u32) {
        let mut left = Vec::new();
        for stream in self.uses.remove(&id).unwrap_or_default() {
            match self.device.record(stream) {
                Ok(event) => {
                    *self.pending.entry(id).or_default() += 1;
                    match self.waits.iter_mut().find(|(s, _)| *s == stream) {
                        Some((_, queue)) => queue.push_back((event, id)),
                        None => self.waits.push((stream, VecDeque::from([(event, id)]))),
                    }
                }
                Err(_) => left.push(stream),
            }
        }
        if !left.is_empty() {
            self.uses.insert(id, left);
            self.deferred.push(id);
        } else if !self.pending.contains_key(&id) {
            self.complete(id);
        }
    }

    /// Frees what other streams are done with. Never waits.
    pub(super) fn poll_waits(&mut self) {
        if self.captures > 0 {
            return;
        }
        for id in std::mem::take(&mut self.deferred) {
            self.await_streams(id);
        }
        self.drain(D::is_done);
    }

    /// Waits for all streams that use freed blocks.
    pub(super) fn finish_waits(&mut self) {
        if self.captures > 0 {
            return;
        }
        self.stats.num_sync_all_streams += 1;
        for id in std::mem::take(&mut self.deferred) {
            self.await_streams(id);
        }
        self.drain(|device, event| device.synchronize(event).is_ok());
    }

    fn drain(&mut self, mut done: impl FnMut(&mut D, crate::device::Event) -> bool) {
        let mut queues = std::mem::take(&mut self.waits);
        for (_, queue) in &mut queues {
            while let Some((event, id)) = queue.front().copied() {
                if !done(&mut self.device, event) {
                    break;
                }
                self.device.forget(event);
                queue.pop_front();
                self.event_passed(id);
            }
        }
        queues.retain(|(_, queue)| !queue.is_empty());
        self.waits = queues;
    }

    fn event_passed(&mut self, id: u32) {
        if let Some(count) = self.pending.get_mut(&id) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            self.pending.remove(&id);
        }
        if !self.uses.contains_key(&id) {
            self.complete(id);
        }
    }

    fn complete(&mut self, id: u32) {
        if self.changes.is_some() {
            let mut info = self.block_info(id);
            info.state = BlockState::Free;
            self.changes.get_or_insert_default().push(Change::Completed(info));
        }
        self.settle(id);
    }
}

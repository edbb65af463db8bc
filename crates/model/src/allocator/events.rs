//! Uses on other streams: `record_stream`, events and deferred frees (specification §5.2, §5.3, §5.5).
//!
//! `graph_capture_record_stream_reuse` depends on the shape of the captured graph, which is outside this
//! model: deferred blocks complete after the capture.

use super::{Allocator, StreamIndex};
use crate::block::BlockId;
use crate::device::Device;
use crate::history::Recorder;

impl<D: Device> Allocator<D> {
    /// `tensor.record_stream(stream)`: the block must not be reused before the work now on `stream`
    /// is done. Its own stream is ignored.
    pub fn record_stream(&mut self, block: BlockId, stream: StreamIndex) {
        if block == BlockId::NULL || self.blocks[block.0].stream == stream.0 {
            return;
        }
        let routing = self.is_routing();
        let uses = &mut self.uses.entry(block.0).or_default().streams;
        if uses.iter().any(|(s, _)| *s == stream.0) {
            return;
        }
        uses.push((stream.0, routing));
        self.blocks[block.0].uses += 1;
    }

    /// Empties the use set of a block and returns what was in it.
    pub(super) fn forget_uses(&mut self, id: u32) -> Vec<(u32, bool)> {
        if std::mem::take(&mut self.blocks[id].uses) == 0 {
            return Vec::new();
        }
        self.uses.remove(&id).unwrap_or_default().streams
    }

    /// One event per used stream; the block is pending until all have passed.
    pub(super) fn record_events(&mut self, id: u32) {
        for (stream, _) in self.forget_uses(id) {
            let event = self.device.record_event(self.streams[stream as usize]);
            self.blocks[id].events += 1;
            self.events[stream as usize].push_back((event, id));
        }
    }

    /// Completes the frees whose events have passed; PyTorch does so at the start of each malloc.
    pub fn process_events(&mut self, history: &mut impl Recorder) {
        if self.deferred.is_empty() && self.events.iter().all(std::collections::VecDeque::is_empty)
        {
            return;
        }
        self.settle_deferred(history);
        for stream in 0..self.events.len() {
            while let Some(&(event, id)) = self.events[stream].front()
                && self.device.event_done(event)
            {
                self.events[stream].pop_front();
                self.finish_event(id, history);
            }
        }
    }

    /// Waits for all streams: every pending free completes. The order between streams is unspecified
    /// in PyTorch; here it is the order of the stream indices.
    pub(super) fn synchronise(&mut self, history: &mut impl Recorder) {
        self.settle_deferred(history);
        for stream in 0..self.events.len() {
            while let Some((_, id)) = self.events[stream].pop_front() {
                self.finish_event(id, history);
            }
        }
        for id in std::mem::take(&mut self.told) {
            self.finish_event(id, history);
        }
    }

    /// Blocks freed during a capture get their events now; uses recorded during it are dropped (§5.5).
    pub(super) fn settle_deferred(&mut self, history: &mut impl Recorder) {
        for id in std::mem::take(&mut self.deferred) {
            let mut left = 0;
            if let Some(uses) = self.uses.get_mut(&id) {
                uses.streams.retain(|(_, captured)| !captured);
                left = uses.streams.len();
            }
            if left == 0 {
                self.forget_uses(id);
                self.complete_free(id, history);
            } else {
                self.record_events(id);
            }
        }
    }
}

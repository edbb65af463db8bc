//! The device of a verification: it answers with what the recording says the driver answered.

use std::collections::VecDeque;

use vramwise_model::device::Device;
use vramwise_types::Action;

use crate::history::Ev;

/// Addresses that the recording does not know start here, far from any real one.
const UNKNOWN: u64 = 1 << 60;

/// See the module's description.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    /// Releases and growth that the current operation shows, in order.
    coming: VecDeque<(Action, u64)>,
    /// Whether the device may refuse: where no limit is known that explains refusals.
    refuses: bool,
    invented: u64,
    total: u64,
}

impl Feed {
    pub(crate) fn new(total: u64, refuses: bool) -> Self {
        Self { coming: VecDeque::new(), refuses, invented: UNKNOWN, total }
    }

    /// The entries of the next operation. A device that may refuse grants memory where the next of them
    /// is growth, and refuses it elsewhere: a refusal leaves no entry of its own.
    pub(crate) fn expect(&mut self, entries: &[Ev]) {
        self.coming.clear();
        let shown = |e: &&Ev| e.action.is_growth() || self.refuses && e.action.is_release();
        self.coming.extend(entries.iter().filter(shown).map(|e| (e.action, e.addr)));
    }

    fn next_is(&self, action: Action) -> Option<u64> {
        self.coming.front().filter(|(a, _)| *a == action).map(|(_, addr)| *addr)
    }

    /// An address that shows at once that the recording has no such growth here.
    fn invent(&mut self, size: u64) -> Option<u64> {
        if self.refuses {
            return None;
        }
        let addr = self.invented;
        self.invented += size.next_multiple_of(1 << 21);
        Some(addr)
    }

    fn released(&mut self) {
        if self.coming.front().is_some_and(|(a, _)| a.is_release()) {
            self.coming.pop_front();
        }
    }
}

impl Device for Feed {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        match self.next_is(Action::SegmentAlloc) {
            Some(addr) => {
                self.coming.pop_front();
                Some(addr)
            }
            None => self.invent(size),
        }
    }

    fn free(&mut self, _addr: u64, _size: u64) {
        self.released();
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        // A reservation shows only when something is mapped into it.
        self.next_is(Action::SegmentMap).or_else(|| self.invent(size))
    }

    fn release_reservation(&mut self, _addr: u64, _size: u64) {}

    fn map(&mut self, _addr: u64, _size: u64) -> bool {
        let granted = self.next_is(Action::SegmentMap).is_some();
        if granted {
            self.coming.pop_front();
        }
        granted || !self.refuses
    }

    fn unmap(&mut self, _addr: u64, _size: u64) {
        self.released();
    }

    fn free_bytes(&self) -> u64 {
        0
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn record_event(&mut self, _stream: u64) -> u64 {
        0
    }

    fn event_done(&mut self, _event: u64) -> bool {
        true
    }
}

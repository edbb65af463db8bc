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
    growth: VecDeque<(Action, u64)>,
    unknown: u64,
    total: u64,
}

impl Feed {
    pub(crate) fn new(total: u64) -> Self {
        Self { growth: VecDeque::new(), unknown: UNKNOWN, total }
    }

    /// The growth entries that the next operation may draw on.
    pub(crate) fn expect(&mut self, entries: &[Ev]) {
        self.growth.clear();
        let growth = entries.iter().filter(|e| e.action.is_growth());
        self.growth.extend(growth.map(|e| (e.action, e.addr)));
    }

    fn invent(&mut self, size: u64) -> u64 {
        let addr = self.unknown;
        self.unknown += size.next_multiple_of(1 << 21);
        addr
    }
}

impl Device for Feed {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        match self.growth.pop_front() {
            Some((Action::SegmentAlloc, addr)) => Some(addr),
            _ => Some(self.invent(size)),
        }
    }

    fn free(&mut self, _addr: u64, _size: u64) {}

    fn reserve(&mut self, size: u64) -> Option<u64> {
        match self.growth.front() {
            Some((Action::SegmentMap, addr)) => Some(*addr),
            _ => Some(self.invent(size)),
        }
    }

    fn release_reservation(&mut self, _addr: u64, _size: u64) {}

    fn map(&mut self, _addr: u64, _size: u64) -> bool {
        self.growth.pop_front();
        true
    }

    fn unmap(&mut self, _addr: u64, _size: u64) {}

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

//! Addresses from a list: the n-th new segment gets the n-th address.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{DriverPlacement, Placement};

/// See the module's description. An address whose range is taken, and every segment beyond the list,
/// gets the driver model's place instead.
#[derive(Clone, Debug)]
pub struct ListedPlacement {
    addrs: Arc<[u64]>,
    next: usize,
    live: BTreeMap<u64, u64>,
    driver: DriverPlacement,
    departures: u64,
}

impl ListedPlacement {
    /// Gives these addresses out in order.
    pub fn new(addrs: Arc<[u64]>) -> Self {
        Self {
            addrs,
            next: 0,
            live: BTreeMap::new(),
            driver: DriverPlacement::default(),
            departures: 0,
        }
    }

    /// Segments that could not have the listed address.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    fn is_free(&self, addr: u64, size: u64) -> bool {
        let Some(end) = addr.checked_add(size) else { return false };
        self.live.range(..end).next_back().is_none_or(|(_, live_end)| *live_end <= addr)
    }
}

impl Placement for ListedPlacement {
    fn place(&mut self, size: u64) -> u64 {
        let listed = self.addrs.get(self.next).copied();
        self.next += 1;
        let addr = match listed.filter(|addr| self.is_free(*addr, size)) {
            Some(addr) => {
                self.driver.adopt(addr, size);
                addr
            }
            None => {
                self.departures += 1;
                self.driver.place(size)
            }
        };
        self.live.insert(addr, addr.saturating_add(size));
        addr
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.live.remove(&addr);
        self.driver.release(addr, size);
    }

    fn reserve(&mut self, size: u64) -> u64 {
        self.driver.reserve(size)
    }
}

//! One device's memory: which addresses are taken, how many bytes are in use.

use std::collections::BTreeMap;

use vramwise_model::device::{DriverPlacement, Placement, ProcessSpace};

use super::context::Step;
use super::host;
use super::mappings;
use super::reserved::Reserved;

/// `cudaMalloc` takes physical memory in pages of this size, bytes.
pub(crate) const PAGE: u64 = 2 << 20;
/// Requests up to this size share a page, bytes.
const SMALL: u64 = 1 << 20;
/// Alignment of shared requests, bytes.
const ALIGNMENT: u64 = 512;
/// The placement's addresses end here: where a process's address space does.
const PLACEMENT_TOP: u64 = host::CHUNKS_END;

/// Where an address belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) device: usize,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// A page that small requests share: free ranges as start → end.
struct Shared {
    free: BTreeMap<u64, u64>,
}

pub(crate) struct DeviceMemory {
    device: usize,
    placement: DriverPlacement,
    reserved: Reserved,
    used: u64,
    peak: u64,
    /// start → bytes asked for.
    live: BTreeMap<u64, u64>,
    shared: BTreeMap<u64, Shared>,
}

impl DeviceMemory {
    pub(crate) fn new(device: usize) -> Self {
        Self {
            device,
            reserved: Reserved::default(),
            placement: DriverPlacement::within(ProcessSpace {
                take: host::take_chunk,
                give_back: host::give_back_chunk,
                below: host::CHUNKS_BEGIN,
            }),
            used: 0,
            peak: 0,
            live: BTreeMap::new(),
            shared: BTreeMap::new(),
        }
    }

    /// The context does something that makes the driver take memory of its own, between the program's.
    pub(crate) fn reach(&mut self, step: Step) {
        match step {
            Step::Init => {
                mappings::first_context();
                self.reserved.start(&mut self.placement);
            }
            Step::FirstKernel => self.reserved.first_kernel(&mut self.placement),
            _ => {}
        }
    }

    /// A handle of cuBLAS is made on this device.
    pub(crate) fn add_handle(&mut self) {
        self.reserved.handle(&mut self.placement);
    }

    /// A stream is made on this device.
    pub(crate) fn add_stream(&mut self) {
        self.reserved.stream(&mut self.placement);
    }

    /// Bytes in use, in whole pages; contexts not counted.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Most bytes in use at once, contexts included.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    pub(crate) fn raise_peak(&mut self, bytes: u64) {
        self.peak = self.peak.max(bytes);
    }

    /// Takes physical memory; `false` where it would exceed `room`.
    pub(crate) fn take(&mut self, bytes: u64, room: u64) -> bool {
        let fits = self.used.checked_add(bytes).is_some_and(|sum| sum <= room);
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Returns physical memory.
    pub(crate) fn put_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(crate) fn malloc(&mut self, bytes: u64, room: u64) -> Option<u64> {
        if bytes > 0 && bytes <= SMALL && !bytes.is_multiple_of(PAGE) {
            return self.malloc_shared(bytes.next_multiple_of(ALIGNMENT), room);
        }
        let whole = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let addr = self.pages(whole, room)?;
        self.live.insert(addr, bytes.max(1));
        Some(addr)
    }

    fn pages(&mut self, bytes: u64, room: u64) -> Option<u64> {
        // Room is checked first: what is placed then is at most a slice's part of the address space.
        if !self.take(bytes, room.min(host::SLICE / 2)) {
            return None;
        }
        let placed = self.placement.place(bytes);
        let below_top = PLACEMENT_TOP - placed;
        if below_top > host::SLICE {
            self.placement.release(placed, bytes);
            self.used -= bytes;
            return None;
        }
        Some(host::slice_end(self.device) - below_top)
    }

    fn release_pages(&mut self, addr: u64, bytes: u64) {
        let placed = PLACEMENT_TOP - (host::slice_end(self.device) - addr);
        self.placement.release(placed, bytes);
        self.used -= bytes;
        host::forget(addr, bytes);
    }

    fn malloc_shared(&mut self, bytes: u64, room: u64) -> Option<u64> {
        let fits = |(_, s): &(&u64, &mut Shared)| s.free.iter().any(|(a, e)| e - a >= bytes);
        if let Some((_, shared)) = self.shared.iter_mut().find(fits) {
            let (&start, &end) = shared.free.iter().find(|(a, e)| *e - *a >= bytes)?;
            shared.free.remove(&start);
            if start + bytes < end {
                shared.free.insert(start + bytes, end);
            }
            self.live.insert(start, bytes);
            return Some(start);
        }
        let page = self.pages(PAGE, room)?;
        let free = BTreeMap::from([(page + bytes, page + PAGE)]);
        self.shared.insert(page, Shared { free });
        self.live.insert(page, bytes);
        Some(page)
    }

    /// `false` where nothing was allocated at `addr`.
    pub(crate) fn free(&mut self, addr: u64) -> bool {
        let Some(bytes) = self.live.remove(&addr) else { return false };
        let page = addr / PAGE * PAGE;
        let Some(shared) = self.shared.get_mut(&page) else {
            self.release_pages(addr, bytes.next_multiple_of(PAGE));
            return true;
        };
        let (mut start, mut end) = (addr, addr + bytes);
        if let Some(e) = shared.free.remove(&end) {
            end = e;
        }
        if let Some((&s, &e)) = shared.free.range(..start).next_back()
            && e == start
        {
            shared.free.remove(&s);
            start = s;
        }
        shared.free.insert(start, end);
        if end - start == PAGE {
            self.shared.remove(&page);
            self.release_pages(page, PAGE);
        }
        true
    }

    /// The allocation that an address lies in: (start, bytes).
    pub(crate) fn range_of(&self, addr: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.live.range(..=addr).next_back()?;
        (addr < start + bytes).then_some((start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 30;

    #[test]
    fn small_requests_share_a_page_and_give_it_back() {
        let mut memory = DeviceMemory::new(0);
        let a = memory.malloc(1000, ROOM).unwrap();
        let b = memory.malloc(4, ROOM).unwrap();
        assert_eq!((b - a, memory.used()), (1024, PAGE));
        assert!(memory.free(a));
        assert_eq!(memory.malloc(600, ROOM), Some(a));
        assert!(memory.free(b) && memory.free(a));
        assert_eq!(memory.used(), 0);
        assert!(!memory.free(a));
    }

    #[test]
    fn a_full_card_refuses_and_loses_nothing() {
        let mut memory = DeviceMemory::new(3);
        let a = memory.malloc(ROOM - PAGE, ROOM).unwrap();
        assert_eq!(memory.malloc(2 * PAGE, ROOM), None);
        assert_eq!(memory.malloc(u64::MAX, ROOM), None);
        assert_eq!(memory.used(), ROOM - PAGE);
        assert_eq!(memory.range_of(a + 7), Some((a, ROOM - PAGE)));
        assert!(memory.free(a));
        assert!(memory.malloc(ROOM, ROOM).is_some());
    }
}

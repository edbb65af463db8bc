//! Backs the addresses of a spot with memory: spare handles, new ones within the slack, recycled ones, new ones.

use super::Heap;
use super::answer::{AllocError, Change};
use super::place::Spot;
use super::recycle::Supply;
use crate::block::{Kind, NONE};
use crate::device::{Device, Failure};
use crate::params::{PAGE, PAGE_UNITS, UNIT};

/// Requests of up to this many new pages are tried without asking the driver what is free.
const FEW_PAGES: u64 = 16;

impl<D: Device> Heap<D> {
    /// Maps memory at every hole of a spot; returns the free run that covers it. What was mapped before a failure
    /// stays, as free memory.
    pub(super) fn back(&mut self, region: u16, spot: &Spot) -> Result<u32, AllocError> {
        let mut supply = Supply::new(self.regions[region as usize].stream, spot);
        supply.captured = self.captures > 0 && self.device.is_capturing(supply.stream);
        let mut run = NONE;
        let holes = self.holes_of(spot);
        let mut result = self.hopeful(&holes, spot, &mut supply);
        for hole in if result.is_ok() { holes } else { Vec::new() } {
            let (first, last) =
                (self.blocks[hole].start / PAGE_UNITS, self.blocks[hole].end() / PAGE_UNITS);
            let from = first.max(spot.start / PAGE_UNITS);
            let to = last.min(spot.end.div_ceil(PAGE_UNITS));
            let (mapped, outcome) = self.fill(hole, from..to, &mut supply);
            run = mapped.unwrap_or(run);
            result = outcome;
            if result.is_err() {
                break;
            }
        }
        self.retire(supply);
        result.map(|()| run)
    }

    /// Whether enough memory can be found at all. A request that fails must not take what is left on its way.
    fn hopeful(
        &mut self,
        holes: &[u32],
        spot: &Spot,
        supply: &mut Supply,
    ) -> Result<(), AllocError> {
        let pages = |hole: &u32| {
            let block = self.blocks[*hole];
            let (from, to) = (block.start.max(spot.start), block.end().min(spot.end));
            u64::from(to.div_ceil(PAGE_UNITS) - from / PAGE_UNITS)
        };
        let need: u64 = holes.iter().map(pages).sum();
        let within_limit = self.limit().saturating_sub(self.held_pages * PAGE) / PAGE;
        if need <= within_limit && need <= FEW_PAGES.max(self.known_free / 2) {
            return Ok(());
        }
        self.known_free = self.device.free() / PAGE;
        let fresh = within_limit.min(self.known_free);
        let found = fresh + self.handles.spare_pages();
        if need <= found || need <= found + self.recyclable_pages(supply) {
            return Ok(());
        }
        Err(AllocError::OutOfMemory)
    }

    fn holes_of(&self, spot: &Spot) -> Vec<u32> {
        let mut id = spot.anchor;
        while self.blocks[id].start > spot.start {
            id = self.blocks[id].prev;
        }
        let mut holes = Vec::new();
        while id != NONE && self.blocks[id].start < spot.end {
            if self.blocks[id].kind == Kind::Hole && self.blocks[id].end() > spot.start {
                holes.push(id);
            }
            id = self.blocks[id].next;
        }
        holes
    }

    /// Maps handles over some pages of a hole, beyond them where a handle is larger; the run that came of it.
    fn fill(
        &mut self,
        hole: u32,
        pages: std::ops::Range<u32>,
        supply: &mut Supply,
    ) -> (Option<u32>, Result<(), AllocError>) {
        let block = self.blocks[hole];
        let (first, last) = (block.start / PAGE_UNITS, block.end() / PAGE_UNITS);
        // What is larger than needed hangs over into the hole; downwards where the spot meets the hole's end.
        let downwards = pages.end == last && pages.start > first;
        let (mut low, mut high) =
            if downwards { (pages.end, pages.end) } else { (pages.start, pages.start) };
        let shared = supply.shared_end().is_some_and(|page| page + 1 == pages.end);
        let mut outcome = Ok(());
        while high - low < pages.len() as u32 {
            let missing = pages.len() as u32 - (high - low);
            // The page that the next block shares gets a handle of its own: what lies below is free with this block.
            let missing = match (shared && missing > 2, downwards) {
                (true, false) => missing - 1,
                (true, true) if low == high => 1,
                _ => missing,
            };
            let room = if downwards { low - first } else { last - high };
            let handle = match self.obtain(block.region, missing, room, supply) {
                Ok(handle) => handle,
                Err(failure) => {
                    outcome = Err(failure);
                    break;
                }
            };
            let count = self.handles[handle].pages;
            let page = if downwards { low - count } else { high };
            let addr = self.extents[block.extent as usize].address(page * PAGE_UNITS);
            if let Err(failure) =
                self.device.map(addr, u64::from(count) * PAGE, self.handles[handle].handle)
            {
                self.handles.add_spare(handle);
                outcome = Err(Self::driver(failure));
                break;
            }
            self.extents[block.extent as usize].set_pages(page, count, handle);
            self.handles[handle].place = Some((block.extent, page));
            if downwards {
                low -= count;
            } else {
                high += count;
            }
        }
        if low == high {
            return (None, outcome);
        }
        if let Err(failure) = self.open(block.extent, low, high) {
            self.unmap_unopened(block.extent, low, high);
            return (None, Err(Self::driver(failure)));
        }
        (Some(self.convert_hole(hole, low, high)), outcome)
    }

    fn open(&mut self, extent: u16, low: u32, high: u32) -> Result<(), Failure> {
        let addr = self.extents[extent as usize].address(low * PAGE_UNITS);
        self.device.set_access(addr, u64::from(high - low) * PAGE)
    }

    /// Takes back mappings that could not be made usable.
    fn unmap_unopened(&mut self, extent: u16, low: u32, high: u32) {
        let mut page = low;
        while page < high {
            let handle = self.extents[extent as usize].page(page);
            let count = self.handles[handle].pages;
            let addr = self.extents[extent as usize].address(page * PAGE_UNITS);
            // If even that fails, the addresses are lost, not the memory: nothing will be mapped there again as
            // the driver refuses it, and the handle can be mapped elsewhere.
            let _ = self.device.unmap(addr, u64::from(count) * PAGE);
            self.extents[extent as usize].set_pages(page, count, crate::extent::NO_HANDLE);
            self.handles[handle].place = None;
            self.handles.add_spare(handle);
            page += count;
        }
    }

    /// Pages `low..high` of a hole are mapped now: they become free memory.
    fn convert_hole(&mut self, hole: u32, low: u32, high: u32) -> u32 {
        self.unlist_hole(hole);
        let (start, end) = (self.blocks[hole].start, self.blocks[hole].end());
        let mut id = hole;
        if low * PAGE_UNITS > start {
            id = self.blocks.split(hole, low * PAGE_UNITS - start);
            self.list_hole(hole);
        }
        if high * PAGE_UNITS < end {
            let rest = self.blocks.split(id, (high - low) * PAGE_UNITS);
            self.list_hole(rest);
        }
        if self.changes.is_some() {
            let change = Change::Mapped(self.range_info(id));
            self.changes.get_or_insert_default().push(change);
        }
        self.put_free(id)
    }

    /// A handle of at most `want` pages, or of at most `room` if there is none.
    fn obtain(
        &mut self,
        region: u16,
        want: u32,
        room: u32,
        supply: &mut Supply,
    ) -> Result<u32, AllocError> {
        let small = self.regions[region as usize].small;
        if let Some(handle) = self.handles.take_spare(want, room) {
            self.stats.on_move(false, small, (u64::from(self.handles[handle].pages) * PAGE) as i64);
            return Ok(handle);
        }
        let pages = self.new_handle_pages(want, small, supply);
        if self.within_slack(pages, supply) {
            match self.create(pages, small) {
                Err(AllocError::OutOfMemory) => {}
                other => return other,
            }
        }
        if let Some(handle) = self.recycle(want, room, small, supply) {
            return Ok(handle);
        }
        if self.exchange(supply) {
            let handle = self.create(self.new_handle_pages(want, small, supply), small);
            if handle.is_ok() {
                return handle;
            }
        }
        match self.create(pages, small) {
            Err(AllocError::OutOfMemory) if pages > 1 => self.create(1, small),
            other => other,
        }
    }

    /// How large a handle is made for `want` pages: the fewest equal parts, each small in proportion to what is held.
    fn new_handle_pages(&self, want: u32, small: bool, supply: &Supply) -> u32 {
        if small {
            return 1;
        }
        let varied = self.lately.is_varied(self.params.varied);
        let share = if varied { self.params.fine_share } else { self.params.handle_share };
        let request = u64::from(supply.units().div_ceil(PAGE_UNITS));
        let cap = (self.held_pages / share.max(1))
            .max(request / self.params.request_share.max(1))
            .min(self.params.handle_cap / PAGE)
            .max(1);
        let parts = u64::from(want).div_ceil(cap).max(1);
        u64::from(want).div_ceil(parts) as u32
    }

    /// Whether new memory may be taken without looking for pages to recycle. The request counts as live already.
    fn within_slack(&self, pages: u32, supply: &Supply) -> bool {
        let live = (self.live_units + u64::from(supply.units())).max(self.peak_units) * UNIT;
        let allowed = live as f64 * (1.0 + self.params.slack);
        ((self.held_pages + u64::from(pages)) * PAGE) as f64 <= allowed
    }

    fn create(&mut self, pages: u32, small: bool) -> Result<u32, AllocError> {
        let bytes = u64::from(pages) * PAGE;
        if self.held_pages * PAGE + bytes > self.limit() {
            return Err(AllocError::OutOfMemory);
        }
        let handle = self.device.create(bytes).map_err(Self::driver)?;
        self.held_pages += u64::from(pages);
        self.known_free = self.known_free.saturating_sub(u64::from(pages));
        self.lately.create(pages, self.held_pages);
        self.stats.num_device_alloc += 1;
        self.stats.on_reserve(small, bytes as i64);
        Ok(self.handles.insert(handle, pages))
    }

    /// Bytes that the heap may hold.
    pub(super) fn limit(&self) -> u64 {
        self.params.limit.unwrap_or(u64::MAX).min(self.device.total())
    }
}

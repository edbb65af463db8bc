//! The heap of one device: requests and releases that need no driver call. What does is in the files beside.

mod answer;
mod check;
mod grow;
mod miss;
mod place;
mod pools;
mod recycle;
mod release;
mod restore;
mod streams;
mod walk;

use std::collections::{BTreeMap, VecDeque};

use crate::block::{Block, Blocks, Kind, NONE};
use crate::device::{Device, Event, Failure};
use crate::extent::{Directory, Extent};
use crate::handles::Handles;
use crate::lately::Lately;
use crate::params::{PAGE_UNITS, Params, UNIT};
use crate::region::Region;
use crate::stats::Stats;

pub use answer::{
    AllocError, Allocation, BlockInfo, BlockState, Change, PoolId, Saved, SegmentInfo, Shortage,
};
use pools::Pool;

/// Memory of one device.
#[derive(Debug)]
pub struct Heap<D> {
    device: D,
    params: Params,
    blocks: Blocks,
    /// The block that was freed last, if it is still apart.
    warm: u32,
    extents: Vec<Extent>,
    directory: Directory,
    regions: Vec<Region>,
    /// Regions of the default pool of streams seen lately: by a hash of the stream, small and large.
    recent: [(u64, [u16; 2]); RECENT],
    handles: Handles,
    /// The first is the default pool.
    pools: Vec<Pool>,
    /// Live blocks that other streams use too.
    uses: BTreeMap<u32, Vec<u64>>,
    /// By stream: events that freed blocks wait for, oldest first.
    waits: Vec<(u64, VecDeque<(Event, u32)>)>,
    /// Freed blocks and the number of events they wait for.
    pending: BTreeMap<u32, u32>,
    /// Freed with other streams' uses during a capture, when no event may be recorded.
    deferred: Vec<u32>,
    /// Old mappings of recycled pages.
    retired: VecDeque<Retired>,
    /// Units in live and pending blocks, now and at most.
    live_units: u64,
    peak_units: u64,
    /// Pages of physical memory held.
    held_pages: u64,
    /// Pages that were free on the device when it was asked last, less those created since. Half of them are relied on:
    /// others may have taken some.
    known_free: u64,
    /// Whether the last misses found memory to recycle.
    lately: Lately,
    /// Captures that are under way.
    captures: u32,
    /// What happened, for those who ask for it.
    changes: Option<Vec<Change>>,
    stats: Stats,
}

/// Old mappings that may be taken away when an event is done.
#[derive(Debug)]
struct Retired {
    event: Event,
    /// The block of the old place, and the handle.
    blocks: Vec<(u32, u32)>,
}

const RECENT: usize = 16;
/// "No region yet".
const NO_REGION: u16 = u16::MAX;

#[inline]
fn recent_slot(stream: u64) -> usize {
    // Streams are addresses of objects: their low bits say little.
    (stream.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize
}

impl<D: Device> Heap<D> {
    /// An empty heap; nothing is asked of the device.
    pub fn new(device: D, params: Params) -> Self {
        Self {
            device,
            params,
            blocks: Blocks::default(),
            warm: NONE,
            extents: Vec::new(),
            directory: Directory::new(),
            regions: Vec::new(),
            recent: [(0, [NO_REGION; 2]); RECENT],
            handles: Handles::default(),
            pools: vec![Pool::new(PoolId::DEFAULT)],
            uses: BTreeMap::new(),
            waits: Vec::new(),
            pending: BTreeMap::new(),
            deferred: Vec::new(),
            retired: VecDeque::new(),
            live_units: 0,
            peak_units: 0,
            held_pages: 0,
            known_free: 0,
            lately: Lately::default(),
            captures: 0,
            changes: None,
            stats: Stats::default(),
        }
    }

    /// A block of at least `bytes` on a stream, from a pool.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`] after everything that can be released was, and a second attempt;
    /// [`AllocError::Driver`] if the driver refused for another reason.
    #[inline]
    pub fn alloc(
        &mut self,
        stream: u64,
        bytes: u64,
        pool: PoolId,
    ) -> Result<Allocation, AllocError> {
        let units =
            u32::try_from(bytes.div_ceil(UNIT).max(1)).map_err(|_| AllocError::OutOfMemory)?;
        if !self.waits.is_empty() || !self.deferred.is_empty() {
            self.poll_waits();
        }
        let small = bytes < self.params.small_below;
        let region = self.region_for(stream, pool, small)?;
        if let Some(id) = self.take_warm(region, units) {
            return Ok(self.hand_out(id, bytes));
        }
        let found = self.regions[region as usize].bins.find(&self.blocks, units);
        let id = match found {
            Some(run) => self.take(run, units),
            None => self.miss(region, units)?,
        };
        Ok(self.hand_out(id, bytes))
    }

    #[inline]
    fn hand_out(&mut self, id: u32, bytes: u64) -> Allocation {
        let block = &mut self.blocks[id];
        block.kind = Kind::Live;
        block.shared = false;
        block.set_requested(bytes);
        let (start, units) = (block.start, block.units);
        let region = &mut self.regions[block.region as usize];
        region.live += 1;
        let small = region.small;
        let extent = &mut self.extents[block.extent as usize];
        extent.set_block(start, id);
        let address = extent.address(start);
        let size = u64::from(units) * UNIT;
        self.live_units += u64::from(units);
        self.peak_units = self.peak_units.max(self.live_units);
        self.stats.on_alloc(small, size as i64, bytes as i64);
        Allocation { address, size, small }
    }

    /// Releases the block that starts at an address; `None` = none does, and nothing was changed.
    #[inline]
    pub fn free(&mut self, address: u64) -> Option<BlockInfo> {
        let id = self.live_block(address)?;
        let mut info = self.block_info(id);
        self.stats.on_free(info.small, info.size as i64, info.requested as i64);
        if self.blocks[id].shared {
            self.free_shared(id);
        } else {
            self.settle(id);
        }
        if self.blocks[id].kind == Kind::Pending {
            info.state = BlockState::Pending;
        } else {
            info.state = BlockState::Free;
        }
        Some(info)
    }

    /// A block that nobody uses any more becomes free.
    #[inline]
    fn settle(&mut self, id: u32) {
        let Block { start, units, region, extent, .. } = self.blocks[id];
        self.extents[extent as usize].set_block(start, NONE);
        self.live_units -= u64::from(units);
        let region = &mut self.regions[region as usize];
        region.live -= 1;
        let small = region.small;
        self.stats.on_idle(small, (u64::from(units) * UNIT) as i64);
        self.blocks[id].kind = Kind::Warm;
        let before = std::mem::replace(&mut self.warm, id);
        if before != NONE {
            self.put_free(before);
        }
    }

    /// The block that was freed last, if it is what is asked for; otherwise it joins the free runs.
    #[inline]
    fn take_warm(&mut self, region: u16, units: u32) -> Option<u32> {
        let id = self.warm;
        if id == NONE {
            return None;
        }
        self.warm = NONE;
        let block = &self.blocks[id];
        if block.units == units && block.region == region {
            return Some(id);
        }
        self.put_free(id);
        None
    }

    /// The block that was freed last joins the free runs: before anything that looks at more than one request does.
    fn cool(&mut self) {
        if self.warm != NONE {
            let id = std::mem::replace(&mut self.warm, NONE);
            self.put_free(id);
        }
    }

    /// Makes a mapped block free and merges it with free neighbours; returns the run's number.
    #[inline]
    fn put_free(&mut self, id: u32) -> u32 {
        let Block { prev, next, region, .. } = self.blocks[id];
        let bins = &mut self.regions[region as usize].bins;
        let mut run = id;
        self.blocks[id].kind = Kind::Free;
        if prev != NONE && self.blocks[prev].kind == Kind::Free {
            bins.remove(&mut self.blocks, prev);
            let units = self.blocks[id].units;
            self.blocks[prev].units += units;
            self.blocks.remove(id);
            run = prev;
        }
        if next != NONE && self.blocks[next].kind == Kind::Free {
            bins.remove(&mut self.blocks, next);
            let units = self.blocks[next].units;
            self.blocks[run].units += units;
            self.blocks.remove(next);
        }
        bins.insert(&mut self.blocks, run);
        run
    }

    /// Takes `units` from a free run, at the end that leaves more wholly free pages.
    #[inline]
    fn take(&mut self, run: u32, units: u32) -> u32 {
        let Block { start, units: have, extent, .. } = self.blocks[run];
        let end = start + have;
        let to_high = have > units && self.prefers_high_end(extent, start, end, units);
        let mut at = if to_high { end - units } else { start };
        if have > units && self.begins_at_page(units) {
            let (low, high) =
                (start.next_multiple_of(PAGE_UNITS), (end - units) / PAGE_UNITS * PAGE_UNITS);
            if low <= high {
                at = if to_high { high } else { low };
            }
        }
        self.carve(run, at, units)
    }

    /// Whether a request should have its pages for itself: one of whole pages, where memory moves about. Between two such
    /// blocks no page is shared, so that each of them gives all that it had back. While nothing moves, packing is denser.
    #[inline]
    fn begins_at_page(&self, units: u32) -> bool {
        units.is_multiple_of(PAGE_UNITS) && self.lately.is_varied(self.params.aligned)
    }

    /// Whether taking `units` from a run's end leaves more pages in wholly free handles than taking them from its start.
    #[inline]
    fn prefers_high_end(&self, extent: u16, start: u32, end: u32, units: u32) -> bool {
        if end - start < PAGE_UNITS {
            return false;
        }
        let extent = &self.extents[extent as usize];
        let (low_cut, high_cut) = (start + units, end - units);
        // Whole pages that stay free, less those of the handle that the cut goes through, which stays here with them.
        let above = {
            let (first, last) = (low_cut.div_ceil(PAGE_UNITS), end / PAGE_UNITS);
            let reach = self.handle_end(extent, low_cut);
            last.saturating_sub(first.max(reach))
        };
        let below = {
            let (first, last) = (start.div_ceil(PAGE_UNITS), high_cut / PAGE_UNITS);
            let reach = self.handle_start(extent, high_cut);
            last.min(reach).saturating_sub(first)
        };
        below > above
    }

    /// The page after the handle that a cut goes through; the cut's page if it lies between two handles.
    fn handle_end(&self, extent: &Extent, cut: u32) -> u32 {
        let page = cut / PAGE_UNITS;
        let physical = &self.handles[extent.page(page)];
        let first = physical.place.map_or(page, |(_, first)| first);
        if first * PAGE_UNITS == cut { page } else { first + physical.pages }
    }

    /// The first page of the handle that a cut goes through; the cut's page if it lies between two handles.
    fn handle_start(&self, extent: &Extent, cut: u32) -> u32 {
        let page = (cut - 1) / PAGE_UNITS;
        let physical = &self.handles[extent.page(page)];
        let first = physical.place.map_or(page, |(_, first)| first);
        if (first + physical.pages) * PAGE_UNITS == cut { cut / PAGE_UNITS } else { first }
    }

    #[inline]
    fn live_block(&self, address: u64) -> Option<u32> {
        let extent = self.directory.find(address)?;
        let id = self.extents[extent as usize].block_at(address);
        (id != NONE && self.blocks[id].kind == Kind::Live).then_some(id)
    }

    #[inline]
    fn region_for(&mut self, stream: u64, pool: PoolId, small: bool) -> Result<u16, AllocError> {
        if pool == PoolId::DEFAULT {
            let (known, regions) = self.recent[recent_slot(stream)];
            let region = regions[usize::from(small)];
            if known == stream && region != NO_REGION {
                return Ok(region);
            }
        }
        self.find_region(stream, pool, small)
    }

    /// The region of a stream and pool, made if it is new. Private pools are not divided by size: there each page
    /// counts, as it cannot be lent.
    fn find_region(&mut self, stream: u64, pool: PoolId, small: bool) -> Result<u16, AllocError> {
        let index = if pool == PoolId::DEFAULT { 0 } else { self.pool_index(pool)? };
        let small = small && index == 0;
        let same = |r: &Region| r.stream == stream && r.pool == index && r.small == small;
        let found = self.regions.iter().position(same).or_else(|| self.adopt_region(stream, index));
        let region = match found {
            Some(region) => region as u16,
            None => {
                let region = u16::try_from(self.regions.len()).ok().filter(|r| *r != NO_REGION);
                let region = region.ok_or(AllocError::OutOfAddresses)?;
                self.regions.push(Region::new(stream, index, small));
                region
            }
        };
        if index == 0 {
            let slot = &mut self.recent[recent_slot(stream)];
            if slot.0 != stream {
                *slot = (stream, [NO_REGION; 2]);
            }
            slot.1[usize::from(small)] = region;
        }
        Ok(region)
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device below, for its own settings.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The choices in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Changes the choices; what is held stays as it is.
    pub fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    fn driver(failure: Failure) -> AllocError {
        match failure {
            Failure::OutOfMemory => AllocError::OutOfMemory,
            Failure::Driver(code) => AllocError::Driver(code),
        }
    }
}

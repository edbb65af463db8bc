//! A request that fits nowhere: wait-free clean-up, a spot, memory for it; and what is left when memory runs short.

use super::Heap;
use super::answer::AllocError;
use crate::block::{Block, NONE};
use crate::device::Device;
use crate::params::UNIT;

impl<D: Device> Heap<D> {
    /// Serves a request that no free run of its region is large enough for.
    #[cold]
    pub(super) fn miss(&mut self, region: u16, units: u32) -> Result<u32, AllocError> {
        self.device.enter();
        let found = if u64::from(units) * UNIT > self.limit() {
            // Nothing helps; but as after any failure the program finds what was free given back, and may go on with less.
            self.stats.num_alloc_retries += 1;
            self.reap();
            self.finish_waits();
            self.release_free(None);
            Err(AllocError::OutOfMemory)
        } else {
            self.find_memory(region, units)
        };
        self.device.leave();
        found
    }

    fn find_memory(&mut self, region: u16, units: u32) -> Result<u32, AllocError> {
        self.reap();
        match self.attempt(region, units) {
            Err(AllocError::OutOfMemory) => {}
            other => return other,
        }
        // Memory is short: wait for what other streams still use, then give everything free back: in other pieces it may serve.
        self.stats.num_alloc_retries += 1;
        self.finish_waits();
        if let Ok(id) = self.attempt(region, units) {
            return Ok(id);
        }
        self.release_free(None);
        match self.attempt(region, units) {
            Err(AllocError::OutOfMemory) => {}
            other => return other,
        }
        self.borrow(region, units).ok_or(AllocError::OutOfMemory)
    }

    fn attempt(&mut self, region: u16, units: u32) -> Result<u32, AllocError> {
        self.cool();
        if let Some(run) = self.regions[region as usize].bins.find_anywhere(&self.blocks, units) {
            return Ok(self.take(run, units));
        }
        let spot = match self.best_spot(region, units) {
            Some(spot) => spot,
            None => {
                self.add_extent(region, units)?;
                self.best_spot(region, units).ok_or(AllocError::OutOfAddresses)?
            }
        };
        let run = self.back(region, &spot)?;
        Ok(self.carve(run, spot.start, units))
    }

    /// Cuts `units` from `start` on out of a free run.
    #[inline]
    pub(super) fn carve(&mut self, run: u32, start: u32, units: u32) -> u32 {
        let Block { start: from, units: have, region, .. } = self.blocks[run];
        let bins = &mut self.regions[region as usize].bins;
        bins.remove(&mut self.blocks, run);
        let mut id = run;
        if start > from {
            id = self.blocks.split(run, start - from);
            bins.insert(&mut self.blocks, run);
        }
        if from + have > start + units {
            let rest = self.blocks.split(id, units);
            bins.insert(&mut self.blocks, rest);
        }
        id
    }

    /// Last resort: a free run of a private pool that allows it (`MemPool(use_on_oom=True)`), same stream.
    fn borrow(&mut self, region: u16, units: u32) -> Option<u32> {
        let stream = self.regions[region as usize].stream;
        let pools = &self.pools;
        let lenders =
            self.regions.iter().filter(|r| r.stream == stream && pools[r.pool as usize].use_on_oom);
        let run = lenders.filter_map(|r| r.bins.find_anywhere(&self.blocks, units)).next()?;
        Some(self.take(run, units))
    }

    /// Bytes of the largest free block that needs no new memory, over all regions or those of one stream and pool.
    pub fn largest_free(&mut self, of: Option<(u64, super::PoolId)>) -> u64 {
        self.cool();
        let wanted = |r: &&crate::region::Region| {
            of.is_none_or(|(stream, pool)| {
                r.stream == stream && self.pools[r.pool as usize].id == pool
            })
        };
        let largest =
            self.regions.iter().filter(wanted).map(|r| r.bins.largest(&self.blocks)).max();
        u64::from(largest.unwrap_or(0)) * UNIT
    }

    /// Puts a hole into its region's list.
    pub(super) fn list_hole(&mut self, id: u32) {
        let region = &mut self.regions[self.blocks[id].region as usize];
        let head = region.holes;
        region.holes = id;
        self.blocks[id].link = [NONE, head];
        if head != NONE {
            self.blocks[head].link[0] = id;
        }
    }

    /// Takes a hole out of its region's list.
    pub(super) fn unlist_hole(&mut self, id: u32) {
        let Block { link: [before, after], region, .. } = self.blocks[id];
        if after != NONE {
            self.blocks[after].link[0] = before;
        }
        if before == NONE {
            self.regions[region as usize].holes = after;
        } else {
            self.blocks[before].link[1] = after;
        }
    }
}

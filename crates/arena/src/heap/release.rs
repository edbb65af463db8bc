//! Giving memory back to the driver: on demand, and when memory is short.

use super::place::Spot;
use super::recycle::Supply;
use super::{AllocError, Heap, PoolId, Shortage};
use crate::block::{Kind, NONE};
use crate::device::{Device, Event};
use crate::extent::NO_HANDLE;
use crate::params::{PAGE, PAGE_UNITS, UNIT};

impl<D: Device> Heap<D> {
    /// Releases every wholly free handle of the default pool and of pools without users, or of one such pool.
    /// Waits for the work that was queued on their streams.
    pub fn empty_cache(&mut self, pool: PoolId) -> Result<(), AllocError> {
        let index = if pool == PoolId::DEFAULT { None } else { Some(self.pool_index(pool)?) };
        self.finish_waits();
        self.release_free(index);
        Ok(())
    }

    /// Releases everything that is free, of all pools that lend or of one.
    pub(super) fn release_free(&mut self, only: Option<u16>) {
        self.cool();
        self.finish_retired();
        for region in 0..self.regions.len() {
            let pool = self.regions[region].pool;
            if self.pools[pool as usize].lends() && only.is_none_or(|p| p == pool) {
                self.release_region(region);
            }
        }
        let spare: Vec<u32> = std::iter::from_fn(|| self.handles.take_any_spare()).collect();
        for handle in spare.into_iter().rev() {
            if self.handles[handle].zombies == 0 {
                self.drop_handle(handle, false);
            } else {
                self.handles.add_spare(handle);
            }
        }
    }

    /// Waits for the work under old mappings and takes them away.
    fn finish_retired(&mut self) {
        let events: Vec<Event> = self.retired.iter().map(|r| r.event).collect();
        for event in events {
            // One that fails stays where it is.
            let _ = self.device.synchronize(event);
        }
        self.reap();
    }

    fn release_region(&mut self, region: usize) {
        let runs: Vec<u32> = self.regions[region].bins.at_least(&self.blocks, PAGE_UNITS).collect();
        if runs.is_empty() || !self.stream_is_idle(self.regions[region].stream) {
            return;
        }
        for run in runs {
            self.release_run(run);
        }
    }

    /// Waits for a stream; `false` = that is not possible now.
    fn stream_is_idle(&mut self, stream: u64) -> bool {
        if self.captures > 0 && self.device.is_capturing(stream) {
            return false;
        }
        let Ok(event) = self.device.record(stream) else { return false };
        let idle = self.device.synchronize(event).is_ok();
        self.device.forget(event);
        idle
    }

    /// Gives back the handles that lie wholly in a free run of an idle stream.
    fn release_run(&mut self, run: u32) {
        let extent = self.blocks[run].extent;
        let low = self.blocks[run].start.div_ceil(PAGE_UNITS);
        let mut page = self.blocks[run].end() / PAGE_UNITS;
        let mut rest = run;
        while page > low {
            let handle = self.extents[extent as usize].page(page - 1);
            let physical = self.handles[handle];
            let first = physical.place.map_or(page - 1, |(_, first)| first);
            let top = page;
            page = first;
            if first < low || first + physical.pages > top || physical.pinned {
                continue;
            }
            let addr = self.extents[extent as usize].address(first * PAGE_UNITS);
            if self.device.unmap(addr, u64::from(physical.pages) * PAGE).is_err() {
                continue;
            }
            let small = self.regions[self.blocks[rest].region as usize].small;
            let hole = self.carve(rest, first * PAGE_UNITS, physical.pages * PAGE_UNITS);
            self.extents[extent as usize].set_pages(first, physical.pages, NO_HANDLE);
            self.handles[handle].place = None;
            if self.changes.is_some() {
                let change = super::Change::Unmapped(self.range_info(hole));
                self.changes.get_or_insert_default().push(change);
            }
            let below = self.blocks[hole].prev;
            self.make_hole(hole);
            if physical.zombies == 0 {
                self.drop_handle(handle, small);
            } else {
                self.handles.add_spare(handle);
                self.stats.on_move(small, false, (u64::from(physical.pages) * PAGE) as i64);
            }
            if below == NONE || self.blocks[below].kind != Kind::Free {
                break;
            }
            rest = below;
        }
    }

    /// Bytes that a request can have whatever its stream and size: wholly free handles of pools that lend, and spare
    /// ones. Free pages of a handle that is in use in part serve its own region alone.
    pub fn movable(&mut self) -> u64 {
        self.cool();
        let anywhere = Supply::new(0, &Spot::NONE);
        (self.recyclable_pages(&anywhere) + self.handles.spare_pages()) * PAGE
    }

    /// What a message about missing memory needs.
    pub fn shortage(&mut self, stream: u64, pool: PoolId) -> Shortage {
        let mut private = 0;
        self.walk(|segment, _| {
            if segment.pool != (0, 0) {
                private += segment.size;
            }
        });
        let bytes = |stat: &crate::Class| stat[0].current.unsigned_abs();
        let allocated = bytes(&self.stats.allocated_bytes);
        Shortage {
            free: self.device.free(),
            total: self.device.total(),
            limit: self.limit(),
            held: self.held_pages * PAGE,
            allocated,
            pending: (self.live_units * UNIT).saturating_sub(allocated),
            private,
            largest_free: self.largest_free(Some((stream, pool))),
        }
    }

    /// A request was given up by the caller.
    pub fn count_oom(&mut self) {
        self.stats.num_ooms += 1;
    }
}

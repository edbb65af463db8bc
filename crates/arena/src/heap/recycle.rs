//! Pages that are wholly free elsewhere serve again, in stream order.
//!
//! A recycled handle is mapped at its new place while its old mapping still exists: what was queued on the old
//! stream may still run there. On the same stream the order of work makes that safe; another stream is made to
//! wait for an event first, and a request inside a capture waits on the host, as a graph may be launched anywhere.
//! The old mapping is a zombie until the event is done.

use super::answer::Change;
use super::place::Spot;
use super::{Heap, Retired};
use crate::block::{Block, Kind};
use crate::device::{Device, Event};
use crate::extent::NO_HANDLE;
use crate::params::{PAGE, PAGE_UNITS};

/// A stream, an event behind its work, and the old mappings (block, handle) that wait for it.
type Behind = (u64, Event, Vec<(u32, u32)>);

/// The state of one search for memory.
pub(super) struct Supply {
    /// The stream that the request is for.
    pub(super) stream: u64,
    /// Whether that stream is being captured.
    pub(super) captured: bool,
    extent: u16,
    start: u32,
    end: u32,
    /// Free runs that hold a page or more, the largest last; made on first use.
    victims: Option<Vec<u32>>,
    /// No handle that could be taken is smaller than this.
    smallest: u32,
    /// By stream: the event behind its work, and the mappings that wait for it.
    events: Vec<Behind>,
    /// Streams whose pages can't be taken now.
    refused: Vec<u64>,
    /// Old places whose mapping is gone already.
    gone: Vec<u32>,
}

impl Supply {
    pub(super) fn new(stream: u64, spot: &Spot) -> Self {
        Self {
            stream,
            captured: false,
            extent: spot.extent,
            start: spot.start,
            end: spot.end,
            victims: None,
            smallest: 0,
            events: Vec::new(),
            refused: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub(super) fn units(&self) -> u32 {
        self.end - self.start
    }

    /// The page that the request ends within, if it ends within one.
    pub(super) fn shared_end(&self) -> Option<u32> {
        (!self.end.is_multiple_of(PAGE_UNITS)).then_some(self.end / PAGE_UNITS)
    }

    /// Whether a range is part of the addresses that are being backed.
    fn claims(&self, extent: u16, start: u32, end: u32) -> bool {
        extent == self.extent && start < self.end && end > self.start
    }
}

impl<D: Device> Heap<D> {
    /// Takes a wholly free handle of at most `want` pages, or of at most `room`, from the largest free run that has one.
    pub(super) fn recycle(
        &mut self,
        want: u32,
        room: u32,
        small: bool,
        supply: &mut Supply,
    ) -> Option<u32> {
        let most = want.max(room);
        if supply.smallest > most {
            return None;
        }
        let (run, handle) = self.find_victim(supply, most)?;
        let zombie = self.detach(run, handle, supply);
        let stream = self.regions[self.blocks[zombie].region as usize].stream;
        let (_, _, zombies) = supply.events.iter_mut().find(|(s, ..)| *s == stream)?;
        zombies.push((zombie, handle));
        self.handles[handle].zombies += 1;
        self.lately.recycle(self.handles[handle].pages, self.held_pages);
        let from_small = self.regions[self.blocks[zombie].region as usize].small;
        self.stats.on_move(
            from_small,
            small,
            (u64::from(self.handles[handle].pages) * PAGE) as i64,
        );
        Some(handle)
    }

    /// Gives a wholly free handle that is too large for the gap back to the driver, so that a smaller one can be
    /// made without holding more. Waits for the work that was queued on its stream.
    pub(super) fn exchange(&mut self, supply: &mut Supply) -> bool {
        if supply.captured {
            return false;
        }
        let Some((run, handle)) = self.find_victim(supply, u32::MAX) else { return false };
        let stream = self.regions[self.blocks[run].region as usize].stream;
        let Some(&(_, event, _)) = supply.events.iter().find(|(s, ..)| *s == stream) else {
            return false;
        };
        if self.handles[handle].zombies > 0 || self.device.synchronize(event).is_err() {
            return false;
        }
        let (extent, page) = self.handles[handle].place.unwrap_or_default();
        let addr = self.extents[extent as usize].address(page * PAGE_UNITS);
        let pages = self.handles[handle].pages;
        if self.device.unmap(addr, u64::from(pages) * PAGE).is_err() {
            return false;
        }
        let zombie = self.detach(run, handle, supply);
        supply.gone.push(zombie);
        let small = self.regions[self.blocks[zombie].region as usize].small;
        self.drop_handle(handle, small);
        true
    }

    /// The first handle that can be taken, of at most `most` pages. Its stream has an event in `supply` then.
    fn find_victim(&mut self, supply: &mut Supply, most: u32) -> Option<(u32, u32)> {
        let mut victims = supply.victims.take().unwrap_or_else(|| self.list_victims());
        let mut smallest = u32::MAX;
        let mut found = None;
        let mut at = victims.len();
        while at > 0 && found.is_none() {
            at -= 1;
            let run = victims[at];
            let mut any = false;
            for handle in self.whole_handles(run, supply) {
                let pages = self.handles[handle].pages;
                if pages <= most && self.may_take_from(run, supply) {
                    found = Some((run, handle));
                    break;
                }
                any = true;
                smallest = smallest.min(pages);
            }
            if found.is_none() && !any {
                victims.remove(at);
            }
        }
        supply.victims = Some(victims);
        if found.is_none() {
            supply.smallest = smallest;
        }
        found
    }

    /// Pages of wholly free handles that could serve this request.
    pub(super) fn recyclable_pages(&self, supply: &Supply) -> u64 {
        let runs = self.list_victims();
        let handles = runs.iter().flat_map(|run| self.whole_handles(*run, supply));
        handles.map(|handle| u64::from(self.handles[handle].pages)).sum()
    }

    /// Free runs of a page or more outside private pools that somebody uses, smallest first.
    fn list_victims(&self) -> Vec<u32> {
        let mut runs: Vec<u32> = self
            .regions
            .iter()
            .filter(|region| self.pools[region.pool as usize].lends())
            .flat_map(|region| region.bins.at_least(&self.blocks, PAGE_UNITS))
            .collect();
        runs.sort_by_key(|id| self.blocks[*id].units);
        runs
    }

    /// Handles that lie wholly in a free run, from its end downwards.
    fn whole_handles(&self, run: u32, supply: &Supply) -> Vec<u32> {
        let Block { kind, region, extent, start, .. } = self.blocks[run];
        let mut handles = Vec::new();
        if kind != Kind::Free || !self.pools[self.regions[region as usize].pool as usize].lends() {
            return handles;
        }
        let low = start.div_ceil(PAGE_UNITS);
        let mut page = self.blocks[run].end() / PAGE_UNITS;
        while page > low {
            let handle = self.extents[extent as usize].page(page - 1);
            let physical = self.handles[handle];
            let first = physical.place.map_or(page - 1, |(_, first)| first);
            let end = first + physical.pages;
            let inside = first >= low && end <= page;
            if inside
                && !physical.pinned
                && !supply.claims(extent, first * PAGE_UNITS, end * PAGE_UNITS)
            {
                handles.push(handle);
            }
            page = first;
        }
        handles
    }

    /// Makes sure that an event stands behind the work of a run's stream, and that the request comes after it.
    fn may_take_from(&mut self, run: u32, supply: &mut Supply) -> bool {
        let stream = self.regions[self.blocks[run].region as usize].stream;
        if supply.events.iter().any(|(s, ..)| *s == stream) {
            return true;
        }
        if supply.refused.contains(&stream) {
            return false;
        }
        let event = self.ordered_event(stream, supply);
        match event {
            Some(event) => supply.events.push((stream, event, Vec::new())),
            None => supply.refused.push(stream),
        }
        event.is_some()
    }

    fn ordered_event(&mut self, stream: u64, supply: &Supply) -> Option<Event> {
        if self.captures > 0 && self.device.is_capturing(stream) {
            return None;
        }
        let event = self.device.record(stream).ok()?;
        let ordered = if supply.captured {
            self.device.synchronize(event).is_ok()
        } else {
            stream == supply.stream || self.device.wait(supply.stream, event).is_ok()
        };
        if !ordered {
            self.device.forget(event);
        }
        ordered.then_some(event)
    }

    /// Cuts the addresses of a handle out of a free run; the piece is a zombie and backs nothing any more.
    fn detach(&mut self, run: u32, handle: u32, supply: &mut Supply) -> u32 {
        let (extent, page) = self.handles[handle].place.unwrap_or_default();
        let pages = self.handles[handle].pages;
        let (start, end) = (self.blocks[run].start, self.blocks[run].end());
        let above = end > (page + pages) * PAGE_UNITS;
        let zombie = self.carve(run, page * PAGE_UNITS, pages * PAGE_UNITS);
        self.blocks[zombie].kind = Kind::Zombie;
        if let Some(victims) = &mut supply.victims {
            if start == page * PAGE_UNITS {
                victims.retain(|id| *id != run);
            }
            if above {
                let rest = self.blocks[zombie].next;
                if self.blocks[rest].units >= PAGE_UNITS {
                    victims.push(rest);
                }
            }
        }
        self.extents[extent as usize].set_pages(page, pages, NO_HANDLE);
        self.handles[handle].place = None;
        if self.changes.is_some() {
            let change = Change::Unmapped(self.range_info(zombie));
            self.changes.get_or_insert_default().push(change);
        }
        zombie
    }

    /// Gives a handle that is mapped nowhere back to the driver.
    pub(super) fn drop_handle(&mut self, id: u32, small: bool) {
        let physical = self.handles[id];
        let bytes = u64::from(physical.pages) * PAGE;
        self.device.release(physical.handle, bytes);
        self.handles.remove(id);
        self.held_pages -= u64::from(physical.pages);
        self.stats.num_device_free += 1;
        self.stats.on_unreserve(small, bytes as i64);
    }

    /// Puts the old mappings of a search where they wait for their events.
    pub(super) fn retire(&mut self, supply: Supply) {
        for (_, event, blocks) in supply.events {
            if blocks.is_empty() {
                self.device.forget(event);
            } else {
                self.retired.push_back(Retired { event, blocks });
            }
        }
        for block in supply.gone {
            self.make_hole(block);
        }
    }

    /// Takes away old mappings whose work is done.
    pub(super) fn reap(&mut self) {
        let mut waiting = std::collections::VecDeque::new();
        while let Some(mut retired) = self.retired.pop_front() {
            if self.device.is_done(retired.event) {
                retired.blocks.retain(|(block, handle)| !self.unmap_zombie(*block, *handle));
            }
            if retired.blocks.is_empty() {
                self.device.forget(retired.event);
            } else {
                waiting.push_back(retired);
            }
        }
        self.retired = waiting;
    }

    pub(super) fn unmap_zombie(&mut self, block: u32, handle: u32) -> bool {
        let Block { extent, start, units, .. } = self.blocks[block];
        let addr = self.extents[extent as usize].address(start);
        if self.device.unmap(addr, u64::from(units / PAGE_UNITS) * PAGE).is_err() {
            return false;
        }
        self.handles[handle].zombies -= 1;
        self.make_hole(block);
        true
    }

    /// Addresses that nothing is mapped at any more become a hole, merged with holes beside.
    pub(super) fn make_hole(&mut self, id: u32) {
        let Block { prev, next, .. } = self.blocks[id];
        let mut hole = id;
        self.blocks[id].kind = Kind::Hole;
        if prev != crate::block::NONE && self.blocks[prev].kind == Kind::Hole {
            self.unlist_hole(prev);
            self.blocks[prev].units += self.blocks[id].units;
            self.blocks.remove(id);
            hole = prev;
        }
        if next != crate::block::NONE && self.blocks[next].kind == Kind::Hole {
            self.unlist_hole(next);
            self.blocks[hole].units += self.blocks[next].units;
            self.blocks.remove(next);
        }
        self.list_hole(hole);
    }
}

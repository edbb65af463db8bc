//! Looking at the state: blocks, segments, counters.

use super::{BlockInfo, BlockState, Change, Heap, SegmentInfo};
use crate::block::{Kind, NONE};
use crate::device::Device;
use crate::params::{PAGE, PAGE_UNITS, UNIT};
use crate::stats::Stats;

impl<D: Device> Heap<D> {
    pub(super) fn block_info(&self, id: u32) -> BlockInfo {
        let block = &self.blocks[id];
        let region = &self.regions[block.region as usize];
        let (state, requested) = match block.kind {
            Kind::Live => (BlockState::Live, block.requested()),
            Kind::Pending => (BlockState::Pending, block.requested()),
            _ => (BlockState::Free, 0),
        };
        BlockInfo {
            address: self.extents[block.extent as usize].address(block.start),
            size: u64::from(block.units) * UNIT,
            requested,
            stream: region.stream,
            pool: self.pools[region.pool as usize].id,
            small: region.small,
            state,
        }
    }

    /// The addresses of one block, as a segment without contents.
    pub(super) fn range_info(&self, id: u32) -> SegmentInfo {
        let BlockInfo { address, size, stream, pool, small, .. } = self.block_info(id);
        SegmentInfo {
            address,
            size,
            stream,
            pool: (pool.0, pool.1),
            small,
            ..SegmentInfo::default()
        }
    }

    /// The live block that starts at an address.
    pub fn find(&self, address: u64) -> Option<BlockInfo> {
        self.live_block(address).map(|id| self.block_info(id))
    }

    /// Calls `visit` with each segment and its blocks, in the order of addresses.
    pub fn walk(&mut self, mut visit: impl FnMut(&SegmentInfo, &[BlockInfo])) {
        self.cool();
        let mut extents: Vec<&crate::extent::Extent> = self.extents.iter().collect();
        extents.sort_by_key(|e| e.base);
        let mut blocks = Vec::new();
        for extent in extents {
            let mut id = extent.first;
            while id != NONE {
                let block = &self.blocks[id];
                match block.kind {
                    Kind::Live | Kind::Pending | Kind::Free => blocks.push(self.block_info(id)),
                    _ => emit(&mut blocks, &mut visit),
                }
                id = block.next;
            }
            emit(&mut blocks, &mut visit);
        }
    }

    /// First byte and length of the segment that an address inside a live block belongs to.
    pub fn base(&self, address: u64) -> Option<(u64, u64)> {
        let extent = &self.extents[self.directory.find(address)? as usize];
        let unit = u32::try_from((address - extent.base) / UNIT).ok()?;
        let mut id = extent.first;
        while id != NONE && self.blocks[id].end() <= unit {
            id = self.blocks[id].next;
        }
        let mapped = |id: u32| id != NONE && self.blocks[id].kind.is_mapped();
        if id == NONE || self.blocks[id].kind != Kind::Live {
            return None;
        }
        let (mut first, mut last) = (id, id);
        while mapped(self.blocks[first].prev) {
            first = self.blocks[first].prev;
        }
        while mapped(self.blocks[last].next) {
            last = self.blocks[last].next;
        }
        let start = extent.address(self.blocks[first].start);
        Some((start, extent.address(self.blocks[last].end()) - start))
    }

    /// Counters, those that are kept and those that are counted now.
    pub fn stats(&mut self) -> Stats {
        let (mut segments, mut splits, mut split_bytes) = ([0i64; 3], [0i64; 3], [0i64; 3]);
        self.walk(|segment, blocks| {
            let class = 2 - usize::from(segment.small);
            for slot in [0, class] {
                segments[slot] += 1;
            }
            for block in blocks.iter().filter(|b| b.state == BlockState::Free) {
                // Pages that hold nothing else can serve elsewhere: they are not stranded.
                let whole = (block.address + block.size) / PAGE * PAGE;
                let first = block.address.next_multiple_of(PAGE);
                let stranded = block.size - whole.saturating_sub(first);
                if stranded > 0 {
                    for slot in [0, class] {
                        splits[slot] += 1;
                        split_bytes[slot] += stranded as i64;
                    }
                }
            }
        });
        for slot in 0..3 {
            self.stats.segment[slot].set(segments[slot]);
            self.stats.inactive_split[slot].set(splits[slot]);
            self.stats.inactive_split_bytes[slot].set(split_bytes[slot]);
        }
        self.stats
    }

    /// The counters that are kept, without counting the rest: for those who ask often.
    pub fn counters(&self) -> &Stats {
        &self.stats
    }

    /// Bytes of physical memory held.
    pub fn held_bytes(&self) -> u64 {
        self.held_pages * PAGE
    }

    /// Peaks start again from what is now.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// Sums start again from zero.
    pub fn reset_accumulated(&mut self) {
        self.stats.reset_accumulated();
    }

    /// From now on changes below the requests are kept for [`Heap::take_changes`], or not any more.
    pub fn watch_changes(&mut self, on: bool) {
        self.changes = on.then(Vec::new);
    }

    /// What happened since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether [`Heap::take_changes`] has something.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|c| !c.is_empty())
    }

    /// Handles under a live block for another process: the first one's address, then each handle with its bytes. They
    /// are never moved again.
    pub fn share(&mut self, address: u64) -> Option<(u64, Vec<(crate::Handle, u64)>)> {
        let id = self.live_block(address)?;
        let block = self.blocks[id];
        let mut page = block.start / PAGE_UNITS;
        let mut start = None;
        let mut shared = Vec::new();
        while page * PAGE_UNITS < block.end() {
            let handle = self.extents[block.extent as usize].page(page);
            let physical = &mut self.handles[handle];
            physical.pinned = true;
            let (_, first) = physical.place?;
            start.get_or_insert(first);
            shared.push((physical.handle, u64::from(physical.pages) * PAGE));
            page = first + physical.pages;
        }
        let base = self.extents[block.extent as usize].address(start? * PAGE_UNITS);
        Some((base, shared))
    }

    /// Every mapped range with its bytes, one a handle: what a new peer must be given access to.
    pub fn mappings(&self) -> Vec<(u64, u64)> {
        let places = self.handles.iter().filter_map(|(_, p)| p.place.map(|place| (place, p.pages)));
        places
            .map(|((extent, page), pages)| {
                (self.extents[extent as usize].address(page * PAGE_UNITS), u64::from(pages) * PAGE)
            })
            .collect()
    }
}

fn emit(blocks: &mut Vec<BlockInfo>, visit: &mut impl FnMut(&SegmentInfo, &[BlockInfo])) {
    let Some(first) = blocks.first() else { return };
    let mut segment = SegmentInfo {
        address: first.address,
        stream: first.stream,
        pool: (first.pool.0, first.pool.1),
        small: first.small,
        ..SegmentInfo::default()
    };
    for block in blocks.iter() {
        segment.size += block.size;
        match block.state {
            BlockState::Live => {
                segment.allocated += block.size;
                segment.active += block.size;
                segment.requested += block.requested;
            }
            BlockState::Pending => segment.active += block.size,
            BlockState::Free => {}
        }
    }
    visit(&segment, blocks);
    blocks.clear();
}

//! Checks every rule of the state.

use super::Heap;
use crate::block::{Block, Kind, NONE};
use crate::check::Violation;
use crate::device::Device;
use crate::extent::NO_HANDLE;
use crate::params::PAGE_UNITS;

macro_rules! hold {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Violation(format!($($message)+)));
        }
    };
}

impl<D: Device> Heap<D> {
    /// Whether the state is sound: blocks tile the addresses, what is mapped is backed once, counters agree.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        let mut live = 0u64;
        let mut listed = (0, 0);
        for index in 0..self.extents.len() {
            live += self.check_extent(index, &mut listed)?;
        }
        hold!(live == self.live_units, "{live} units in use, {} counted", self.live_units);
        self.check_lists(listed)?;
        self.check_handles()
    }

    /// Units in use; counts free blocks and holes.
    fn check_extent(&self, index: usize, listed: &mut (usize, usize)) -> Result<u64, Violation> {
        let extent = &self.extents[index];
        let (mut id, mut before, mut at, mut live) = (extent.first, NONE, 0, 0);
        let mut last = Kind::Vacant;
        while id != NONE {
            let block = self.blocks[id];
            hold!(
                block.start == at,
                "block {id} of extent {index} starts at {} instead of {at}",
                block.start
            );
            hold!(
                block.prev == before,
                "block {id}: its neighbour below is {} instead of {before}",
                block.prev
            );
            hold!(block.units > 0, "block {id} is empty");
            hold!(
                block.extent as usize == index && block.region == extent.region,
                "block {id} is in the wrong place"
            );
            let alike = block.kind == last && matches!(last, Kind::Free | Kind::Hole);
            hold!(!alike, "blocks {before} and {id} are both {last:?}");
            hold!(block.kind != Kind::Vacant, "block {id} is not in use but linked");
            let warm = block.kind == Kind::Warm;
            hold!(
                warm == (self.warm == id),
                "block {id} is {:?}, {} was freed last",
                block.kind,
                self.warm
            );
            self.check_pages(id, &block)?;
            let entered = extent.block_at(extent.address(block.start));
            match block.kind {
                Kind::Live | Kind::Pending => {
                    hold!(entered == id, "block {id} is not in the table of its extent");
                    live += u64::from(block.units);
                }
                _ => hold!(entered == NONE, "block {id} is in the table but not in use"),
            }
            listed.0 += usize::from(block.kind == Kind::Free);
            listed.1 += usize::from(block.kind == Kind::Hole);
            (before, at, last, id) = (id, block.end(), block.kind, block.next);
        }
        hold!(at == extent.units, "the blocks of extent {index} end at {at}");
        Ok(live)
    }

    fn check_pages(&self, id: u32, block: &Block) -> Result<(), Violation> {
        let extent = &self.extents[block.extent as usize];
        let mapped = block.kind.is_mapped();
        if !mapped {
            let whole =
                block.start.is_multiple_of(PAGE_UNITS) && block.units.is_multiple_of(PAGE_UNITS);
            hold!(whole, "{:?} {id} is not made of whole pages", block.kind);
        }
        // The last hole of an extent is long, and its pages were never used: a few tell enough.
        let pages = block.start / PAGE_UNITS..block.end().div_ceil(PAGE_UNITS);
        for page in pages.take(1 << 16) {
            let handle = extent.page(page);
            hold!(
                (handle != NO_HANDLE) == mapped,
                "page {page} of {:?} {id} has handle {handle}",
                block.kind
            );
            if mapped {
                let place = self.handles[handle].place;
                let pages = self.handles[handle].pages;
                let inside = place.is_some_and(|(e, first)| {
                    e == block.extent && (first..first + pages).contains(&page)
                });
                hold!(
                    inside,
                    "handle {handle} backs page {page} of block {id} but is at {place:?}"
                );
            }
        }
        Ok(())
    }

    /// All free blocks are in bins, all holes in lists, in their own region's.
    fn check_lists(&self, (free, holes): (usize, usize)) -> Result<(), Violation> {
        let (mut in_bins, mut in_lists) = (0, 0);
        for (index, region) in self.regions.iter().enumerate() {
            for id in region.bins.at_least(&self.blocks, 0) {
                let block = &self.blocks[id];
                hold!(
                    block.kind == Kind::Free && block.region as usize == index,
                    "block {id} is in a wrong bin"
                );
                in_bins += 1;
            }
            let mut id = region.holes;
            while id != NONE {
                let block = &self.blocks[id];
                hold!(
                    block.kind == Kind::Hole && block.region as usize == index,
                    "block {id} is in a wrong list"
                );
                in_lists += 1;
                id = block.link[1];
            }
        }
        hold!(in_bins == free, "{free} free blocks, {in_bins} in bins");
        hold!(in_lists == holes, "{holes} holes, {in_lists} in lists");
        Ok(())
    }

    fn check_handles(&self) -> Result<(), Violation> {
        let spare: Vec<u32> = self.handles.spare().collect();
        let mut pages = 0;
        for (id, physical) in self.handles.iter() {
            pages += u64::from(physical.pages);
            let spares = spare.iter().filter(|s| **s == id).count();
            let placed = usize::from(physical.place.is_some());
            hold!(
                spares + placed == 1,
                "handle {id} is spare {spares} times and placed {placed} times"
            );
            let zombies =
                self.retired.iter().flat_map(|r| &r.blocks).filter(|(_, h)| *h == id).count();
            hold!(zombies == physical.zombies as usize, "handle {id} has {zombies} old mappings");
        }
        hold!(pages == self.held_pages, "{pages} pages held, {} counted", self.held_pages);
        let reserved = self.stats.reserved_bytes;
        hold!(
            reserved[0].current == (pages * crate::params::PAGE) as i64,
            "reserved bytes: {:?}",
            reserved[0]
        );
        hold!(
            reserved[1].current + reserved[2].current == reserved[0].current,
            "classes of reserved: {reserved:?}"
        );
        Ok(())
    }
}

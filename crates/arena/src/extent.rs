//! A stretch of reserved addresses: which blocks start where, which pages are backed by what.

use crate::block::NONE;
use crate::params::{PAGE_UNITS, UNIT};

/// Extents start at multiples of this many bytes, so that an address says its extent.
pub(crate) const EXTENT_ALIGN: u64 = 1 << EXTENT_SHIFT;
pub(crate) const EXTENT_SHIFT: u32 = 30;
/// Addresses of a process end here (47 bits).
const TOP: usize = 1 << (47 - EXTENT_SHIFT);

/// Units that one chunk of the table of blocks covers: 64 MiB of addresses.
const CHUNK_UNITS: u32 = 1 << 17;
/// Pages that one chunk covers.
const CHUNK_PAGES: u32 = CHUNK_UNITS / PAGE_UNITS;

/// "Not backed".
pub(crate) const NO_HANDLE: u32 = u32::MAX;

/// 64 MiB of addresses that were mapped at some time.
#[derive(Debug)]
struct Chunk {
    /// By unit: 1 + the live or pending block that starts there; 0 = none does. Zeroed memory from the system is
    /// not touched before it is used, so the table costs 4 KiB for each 512 KiB that has blocks.
    starts: Box<[u32]>,
    /// By page: the handle mapped there.
    pages: [u32; CHUNK_PAGES as usize],
}

#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) base: u64,
    pub(crate) units: u32,
    pub(crate) region: u16,
    /// The block at its start.
    pub(crate) first: u32,
    chunks: Vec<Option<Box<Chunk>>>,
}

impl Extent {
    pub(crate) fn new(base: u64, units: u32, region: u16, first: u32) -> Self {
        let mut chunks = Vec::new();
        chunks.resize_with(units.div_ceil(CHUNK_UNITS) as usize, || None);
        Self { base, units, region, first, chunks }
    }

    pub(crate) fn address(&self, unit: u32) -> u64 {
        self.base + u64::from(unit) * UNIT
    }

    /// The block that starts at an address; [`NONE`] if none does.
    #[inline]
    pub(crate) fn block_at(&self, addr: u64) -> u32 {
        let offset = addr - self.base;
        let unit = (offset / UNIT) as u32;
        if !offset.is_multiple_of(UNIT) || unit >= self.units {
            return NONE;
        }
        match &self.chunks[(unit / CHUNK_UNITS) as usize] {
            Some(chunk) => chunk.starts[(unit % CHUNK_UNITS) as usize].wrapping_sub(1),
            None => NONE,
        }
    }

    /// Enters or clears the block that starts at a unit. Only mapped addresses have blocks.
    #[inline]
    pub(crate) fn set_block(&mut self, unit: u32, block: u32) {
        let chunk = self.chunks[(unit / CHUNK_UNITS) as usize].as_mut();
        if let Some(chunk) = chunk {
            chunk.starts[(unit % CHUNK_UNITS) as usize] = block.wrapping_add(1);
        }
    }

    /// The handle that backs a page.
    pub(crate) fn page(&self, page: u32) -> u32 {
        match &self.chunks[(page / CHUNK_PAGES) as usize] {
            Some(chunk) => chunk.pages[(page % CHUNK_PAGES) as usize],
            None => NO_HANDLE,
        }
    }

    /// Enters what backs pages.
    pub(crate) fn set_pages(&mut self, first: u32, count: u32, handle: u32) {
        for page in first..first + count {
            let chunk = self.chunks[(page / CHUNK_PAGES) as usize].get_or_insert_with(|| {
                Box::new(Chunk {
                    starts: vec![0; CHUNK_UNITS as usize].into_boxed_slice(),
                    pages: [NO_HANDLE; CHUNK_PAGES as usize],
                })
            });
            chunk.pages[(page % CHUNK_PAGES) as usize] = handle;
        }
    }
}

/// From an address to its extent: one load.
#[derive(Debug)]
pub(crate) struct Directory {
    /// 1 + extent.
    table: Box<[u16]>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self { table: vec![0; TOP].into_boxed_slice() }
    }

    #[inline]
    pub(crate) fn find(&self, addr: u64) -> Option<u16> {
        match self.table.get((addr >> EXTENT_SHIFT) as usize) {
            None | Some(0) => None,
            Some(extent) => Some(extent - 1),
        }
    }

    /// Whether the range lies where addresses can be looked up.
    pub(crate) fn covers(base: u64, bytes: u64) -> bool {
        base.is_multiple_of(EXTENT_ALIGN)
            && base.checked_add(bytes).is_some_and(|end| end >> EXTENT_SHIFT <= TOP as u64)
    }

    pub(crate) fn set(&mut self, base: u64, bytes: u64, extent: u16) {
        let first = (base >> EXTENT_SHIFT) as usize;
        let last = ((base + bytes - 1) >> EXTENT_SHIFT) as usize;
        self.table[first..=last].fill(extent + 1);
    }
}

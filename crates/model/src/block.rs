//! Blocks: pieces of segments, linked to their neighbours, kept in a table by index.

use crate::ties::TieRule;

/// Index of a block; stays the same object while the block lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    /// The null pointer that a request for 0 bytes yields.
    pub const NULL: BlockId = BlockId(NONE);
}

pub(crate) const NONE: u32 = u32::MAX;

/// Handed out and not given back yet.
pub(crate) const ALLOCATED: u8 = 1;
/// Backed by physical memory (always, outside expandable segments).
pub(crate) const MAPPED: u8 = 2;
/// Part of an expandable segment.
pub(crate) const EXPANDABLE: u8 = 4;
/// In a free set (mapped) or an unmapped set.
pub(crate) const FREE: u8 = 8;
/// The slot holds a block.
pub(crate) const LIVE: u8 = 16;

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) addr: u64,
    /// What else than the address decides among free blocks of its size: see [`TieRule`].
    pub(crate) rank: u64,
    pub(crate) size: u64,
    /// Size of the last request; stale once the block is free (specification §8.5).
    pub(crate) requested: u64,
    /// Lookup counter of the pool when the block last became free (§4.2).
    pub(crate) stamp: u64,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Index of the pool half: 2 × pool + (0 small, 1 large).
    pub(crate) half: u32,
    pub(crate) stream: u32,
    /// Index of the reservation, [`NONE`] for ordinary segments.
    pub(crate) reservation: u32,
    /// Events on other streams that must pass before the block is reusable.
    pub(crate) events: u32,
    /// Streams other than its own that used the block since it was handed out.
    pub(crate) uses: u32,
    pub(crate) flags: u8,
}

impl Block {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the block has a neighbour in its segment.
    pub(crate) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }

    pub(crate) fn end(&self) -> u64 {
        self.addr + self.size
    }
}

/// All blocks of a device.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<u32>,
    ties: TieRule,
    /// Blocks made so far.
    made: u64,
}

impl Blocks {
    pub(crate) fn new(ties: TieRule) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), ties, made: 0 }
    }

    pub(crate) fn add(&mut self, mut block: Block) -> u32 {
        block.flags |= LIVE;
        if self.ties == TieRule::BlockAge {
            self.made += 1;
            block.rank = self.ties.rank(self.made, block.addr);
        }
        if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = block;
            return id;
        }
        let id = u32::try_from(self.slots.len()).expect("fewer than 2^32 blocks at one time");
        self.slots.push(block);
        id
    }

    pub(crate) fn drop(&mut self, id: u32) {
        self[id].flags = 0;
        self.vacant.push(id);
    }

    /// All live blocks, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        (0..).zip(&self.slots).filter(|(_, b)| b.has(LIVE))
    }
}

impl std::ops::Index<u32> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, id: u32) -> &Block {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Block {
        &mut self.slots[id as usize]
    }
}

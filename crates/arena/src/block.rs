//! Blocks: pieces of an extent of addresses, linked in address order, 32 bytes each.

/// "No block".
pub(crate) const NONE: u32 = u32::MAX;

/// What a piece of addresses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The slot is not in use.
    Vacant,
    /// Handed out.
    Live,
    /// Freed, but other streams may still use it.
    Pending,
    /// Mapped and free; never beside another free block.
    Free,
    /// Freed last of all: kept apart, as a request of just its size often comes next. One of a heap at most.
    Warm,
    /// Not mapped; whole pages; never beside another hole.
    Hole,
    /// Mapped still, but its memory serves elsewhere: becomes a hole when an event is done. One whole handle.
    Zombie,
}

impl Kind {
    /// Whether its addresses are backed, and by nothing else's memory.
    pub(crate) fn is_mapped(self) -> bool {
        matches!(self, Self::Live | Self::Pending | Self::Free | Self::Warm)
    }
}

/// One piece. Links that only some kinds need share two words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// First unit (512 bytes) within the extent.
    pub(crate) start: u32,
    /// Length in units.
    pub(crate) units: u32,
    /// Neighbours in address order.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Free, hole: the list that it is in. Live, pending: the bytes asked for.
    pub(crate) link: [u32; 2],
    pub(crate) region: u16,
    pub(crate) extent: u16,
    pub(crate) kind: Kind,
    /// Live: used on other streams too.
    pub(crate) shared: bool,
}

impl Block {
    pub(crate) fn end(&self) -> u32 {
        self.start + self.units
    }

    pub(crate) fn requested(&self) -> u64 {
        u64::from(self.link[0]) | u64::from(self.link[1]) << 32
    }

    pub(crate) fn set_requested(&mut self, bytes: u64) {
        self.link = [bytes as u32, (bytes >> 32) as u32];
    }
}

/// All blocks of a heap, by number.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<u32>,
}

impl Blocks {
    pub(crate) fn insert(&mut self, block: Block) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = block;
            return id;
        }
        self.slots.push(block);
        (self.slots.len() - 1) as u32
    }

    /// Takes a block out of its chain and forgets it.
    pub(crate) fn remove(&mut self, id: u32) {
        let Block { prev, next, .. } = self[id];
        if prev != NONE {
            self[prev].next = next;
        }
        if next != NONE {
            self[next].prev = prev;
        }
        self[id].kind = Kind::Vacant;
        self.vacant.push(id);
    }

    /// Cuts a block in two; the first part keeps its number, the second has the same kind and the number returned.
    pub(crate) fn split(&mut self, id: u32, units: u32) -> u32 {
        let mut rest = self[id];
        rest.start += units;
        rest.units -= units;
        rest.prev = id;
        let after = rest.next;
        let new = self.insert(rest);
        self[id].units = units;
        self[id].next = new;
        if after != NONE {
            self[after].prev = new;
        }
        new
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

//! Free runs of one region, by size: exact sizes below 16 KiB, 32 classes for each power of two above.

use crate::block::{Blocks, NONE};

/// Sizes below this many units have a bin each.
const EXACT: u32 = 32;
/// Bins of one power of two, as a power of two.
const SUB_BITS: u32 = 5;
const BINS: usize = EXACT as usize + (27 << SUB_BITS);
const WORDS: usize = BINS.div_ceil(64);

/// Blocks looked at in the request's own bin, where not all fit.
const OWN_TRIES: usize = 16;
/// Blocks looked at in the next bin that has any, where all fit.
const NEXT_TRIES: usize = 4;

#[derive(Debug)]
pub(crate) struct Bins {
    heads: Box<[u32; BINS]>,
    words: [u64; WORDS],
    /// Which words are not zero.
    summary: u32,
}

impl Default for Bins {
    fn default() -> Self {
        Self { heads: Box::new([NONE; BINS]), words: [0; WORDS], summary: 0 }
    }
}

/// The bin of runs of this many units.
#[inline]
fn bin_of(units: u32) -> usize {
    if units < EXACT {
        return units as usize;
    }
    let top = 31 - units.leading_zeros();
    let sub = (units >> (top - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (EXACT + ((top - SUB_BITS) << SUB_BITS) + sub) as usize
}

impl Bins {
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, id: u32) {
        let bin = bin_of(blocks[id].units);
        let head = self.heads[bin];
        blocks[id].link = [NONE, head];
        if head == NONE {
            self.words[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
        } else {
            blocks[head].link[0] = id;
        }
        self.heads[bin] = id;
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, id: u32) {
        let [before, after] = blocks[id].link;
        if after != NONE {
            blocks[after].link[0] = before;
        }
        if before != NONE {
            blocks[before].link[1] = after;
            return;
        }
        let bin = bin_of(blocks[id].units);
        self.heads[bin] = after;
        if after == NONE {
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    /// A run of at least `units`: the smallest of a few.
    #[inline]
    pub(crate) fn find(&self, blocks: &Blocks, units: u32) -> Option<u32> {
        let own = bin_of(units);
        if self.words[own / 64] >> (own % 64) & 1 == 1
            && let Some(found) = self.smallest(blocks, self.heads[own], units, OWN_TRIES)
        {
            return Some(found);
        }
        let next = self.next_bin(own + 1)?;
        self.smallest(blocks, self.heads[next], units, NEXT_TRIES)
    }

    /// Any run of at least `units`, however long it takes: the own bin of the size to its end.
    pub(crate) fn find_anywhere(&self, blocks: &Blocks, units: u32) -> Option<u32> {
        self.smallest(blocks, self.heads[bin_of(units)], units, usize::MAX)
            .or_else(|| self.find(blocks, units))
    }

    #[inline]
    fn smallest(&self, blocks: &Blocks, head: u32, units: u32, tries: usize) -> Option<u32> {
        let (mut best, mut best_units) = (NONE, u32::MAX);
        let mut id = head;
        for _ in 0..tries {
            if id == NONE {
                break;
            }
            let block = &blocks[id];
            if block.units == units {
                return Some(id);
            }
            if block.units > units && (best == NONE || block.units < best_units) {
                (best, best_units) = (id, block.units);
            }
            id = block.link[1];
        }
        (best != NONE).then_some(best)
    }

    /// The first bin from `bin` on that is not empty.
    #[inline]
    fn next_bin(&self, bin: usize) -> Option<usize> {
        let mut word = bin / 64;
        if word >= WORDS {
            return None;
        }
        let bits = self.words[word] & (!0 << (bin % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let later = self.summary & (!0u32).checked_shl(word as u32 + 1).unwrap_or(0);
        if later == 0 {
            return None;
        }
        word = later.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Units of the largest run.
    pub(crate) fn largest(&self, blocks: &Blocks) -> u32 {
        let Some(word) = self.words.iter().rposition(|w| *w != 0) else { return 0 };
        let bin = word * 64 + 63 - self.words[word].leading_zeros() as usize;
        self.list(blocks, self.heads[bin]).map(|id| blocks[id].units).max().unwrap_or(0)
    }

    /// All runs of at least `units`, from the bins downwards.
    pub(crate) fn at_least<'a>(
        &'a self,
        blocks: &'a Blocks,
        units: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        (bin_of(units)..BINS)
            .rev()
            .filter(|bin| self.words[bin / 64] >> (bin % 64) & 1 == 1)
            .flat_map(|bin| self.list(blocks, self.heads[bin]))
            .filter(move |id| blocks[*id].units >= units)
    }

    fn list<'a>(&self, blocks: &'a Blocks, head: u32) -> impl Iterator<Item = u32> + 'a {
        let mut id = head;
        std::iter::from_fn(move || {
            let this = (id != NONE).then_some(id)?;
            id = blocks[this].link[1];
            Some(this)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, Kind};

    fn free(units: u32) -> Block {
        Block {
            start: 0,
            units,
            prev: NONE,
            next: NONE,
            link: [NONE; 2],
            region: 0,
            extent: 0,
            kind: Kind::Free,
            shared: false,
        }
    }

    #[test]
    fn bins_grow_with_sizes_and_end_in_range() {
        let mut last = 0;
        for units in (1..5000).chain((13..32).map(|b| 1u32 << b)).chain([u32::MAX]) {
            let bin = bin_of(units);
            assert!(bin >= last && bin < BINS, "{units} in {bin}");
            last = bin;
        }
    }

    #[test]
    fn the_smallest_that_fits_is_found_and_nothing_smaller() {
        let mut blocks = Blocks::default();
        let mut bins = Bins::default();
        for units in [3, 40, 41, 5000, 70_000, u32::MAX] {
            let id = blocks.insert(free(units));
            bins.insert(&mut blocks, id);
        }
        let found = |bins: &Bins, units| bins.find(&blocks, units).map(|id| blocks[id].units);
        assert_eq!(found(&bins, 1), Some(3));
        assert_eq!(found(&bins, 4), Some(40));
        assert_eq!(found(&bins, 41), Some(41));
        assert_eq!(found(&bins, 42), Some(5000));
        assert_eq!(found(&bins, 70_001), Some(u32::MAX));
        assert_eq!(bins.largest(&blocks), u32::MAX);
        for id in 0..6 {
            bins.remove(&mut blocks, id);
        }
        assert_eq!(bins.find(&blocks, 1), None);
        assert_eq!(bins.largest(&blocks), 0);
    }
}

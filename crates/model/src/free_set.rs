//! The free blocks of one pool and stream, ordered by (size, place among equals): the place is what
//! [`TieRule`](crate::TieRule) says.
//!
//! A sorted list in chunks: the sets of real programs hold tens to a few thousand blocks, where a short
//! binary search and a short move beat a tree of single keys. The order is the one that PyTorch's
//! comparator gives inside one stream (specification §2.1).

/// Entries per chunk before it is cut in two.
const CHUNK: usize = 128;

/// One free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) size: u64,
    pub(crate) order: u64,
    pub(crate) block: u32,
}

/// Place of an entry; valid until the set changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    chunk: usize,
    slot: usize,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    keys: Vec<u128>,
    blocks: Vec<u32>,
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSet {
    /// Never empty chunks, ascending; an empty set has none.
    chunks: Vec<Chunk>,
}

fn key(size: u64, order: u64) -> u128 {
    (u128::from(size) << 64) | u128::from(order)
}

impl FreeSet {
    /// Chunk that holds or would hold a key: the first whose last key is not below it, else the last.
    #[inline]
    fn chunk_of(&self, key: u128) -> usize {
        if self.chunks.len() <= 1 {
            return 0;
        }
        let below = |c: &Chunk| c.keys.last().is_some_and(|last| *last < key);
        self.chunks.partition_point(below).min(self.chunks.len() - 1)
    }

    pub(crate) fn insert(&mut self, size: u64, order: u64, block: u32) {
        let key = key(size, order);
        if self.chunks.is_empty() {
            self.chunks
                .push(Chunk { keys: Vec::with_capacity(CHUNK), blocks: Vec::with_capacity(CHUNK) });
        }
        let at = self.chunk_of(key);
        let chunk = &mut self.chunks[at];
        let slot = chunk.keys.partition_point(|k| *k < key);
        debug_assert!(chunk.keys.get(slot) != Some(&key), "a free block is in its set once");
        chunk.keys.insert(slot, key);
        chunk.blocks.insert(slot, block);
        if chunk.keys.len() >= CHUNK {
            let upper = Chunk {
                keys: split_with_room(&mut chunk.keys),
                blocks: split_with_room(&mut chunk.blocks),
            };
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Takes the block of that size and address out; it must be there.
    pub(crate) fn remove(&mut self, size: u64, order: u64) {
        let key = key(size, order);
        let chunk = self.chunk_of(key);
        let slot = self.chunks.get(chunk).map_or(0, |c| c.keys.partition_point(|k| *k < key));
        debug_assert!(self.chunks.get(chunk).is_some_and(|c| c.keys.get(slot) == Some(&key)));
        self.remove_at(Cursor { chunk, slot });
    }

    pub(crate) fn remove_at(&mut self, at: Cursor) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.keys.remove(at.slot);
        chunk.blocks.remove(at.slot);
        // The last chunk is kept although empty only if it is the only one: its memory is used again.
        if chunk.keys.is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(at.chunk);
        }
    }

    /// The first entry with at least `size` bytes.
    #[inline]
    pub(crate) fn at_least(&self, size: u64) -> Option<Cursor> {
        let key = key(size, 0);
        let chunk = self.chunk_of(key);
        let slot = self.chunks.get(chunk)?.keys.partition_point(|k| *k < key);
        let at = Cursor { chunk, slot };
        (slot < self.chunks[chunk].keys.len()).then_some(at)
    }

    #[inline]
    pub(crate) fn get(&self, at: Cursor) -> Entry {
        let chunk = &self.chunks[at.chunk];
        let key = chunk.keys[at.slot];
        #[allow(clippy::cast_possible_truncation)] // the two halves of the key
        Entry { size: (key >> 64) as u64, order: key as u64, block: chunk.blocks[at.slot] }
    }

    #[inline]
    pub(crate) fn next(&self, at: Cursor) -> Option<Cursor> {
        if at.slot + 1 < self.chunks[at.chunk].keys.len() {
            Some(Cursor { chunk: at.chunk, slot: at.slot + 1 })
        } else {
            (at.chunk + 1 < self.chunks.len()).then_some(Cursor { chunk: at.chunk + 1, slot: 0 })
        }
    }

    /// The last entry below `size` bytes.
    pub(crate) fn last_below(&self, size: u64) -> Option<Cursor> {
        match self.at_least(size) {
            Some(at) => self.previous(at),
            None => {
                let chunk = self.chunks.len().checked_sub(1)?;
                let slot = self.chunks[chunk].keys.len().checked_sub(1)?;
                Some(Cursor { chunk, slot })
            }
        }
    }

    /// The last entry before (`size`, `order`) in the order; without an address, the last one below
    /// `size`.
    pub(crate) fn before(&self, size: u64, order: Option<u64>) -> Option<Entry> {
        let Some(order) = order else { return self.last_below(size).map(|at| self.get(at)) };
        let key = key(size, order);
        let chunk = self.chunk_of(key);
        let slot = self.chunks.get(chunk)?.keys.partition_point(|k| *k < key);
        self.previous(Cursor { chunk, slot }).map(|at| self.get(at))
    }

    fn previous(&self, at: Cursor) -> Option<Cursor> {
        if let Some(slot) = at.slot.checked_sub(1) {
            return Some(Cursor { chunk: at.chunk, slot });
        }
        let chunk = at.chunk.checked_sub(1)?;
        Some(Cursor { chunk, slot: self.chunks[chunk].keys.len() - 1 })
    }

    /// The entry of exactly that size and address.
    pub(crate) fn at(&self, size: u64, order: u64) -> Option<Entry> {
        let key = key(size, order);
        let chunk = self.chunk_of(key);
        let slot = self.chunks.get(chunk)?.keys.partition_point(|k| *k < key);
        let found = self.chunks[chunk].keys.get(slot) == Some(&key);
        found.then(|| self.get(Cursor { chunk, slot }))
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.keys.len()).sum()
    }

    /// All entries, ascending by (size, address).
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        self.chunks.iter().enumerate().flat_map(move |(chunk, c)| {
            (0..c.keys.len()).map(move |slot| self.get(Cursor { chunk, slot }))
        })
    }
}

/// Cuts the upper half off, with room to grow in both.
fn split_with_room<T: Copy>(values: &mut Vec<T>) -> Vec<T> {
    let mut upper = Vec::with_capacity(CHUNK);
    upper.extend_from_slice(&values[CHUNK / 2..]);
    values.truncate(CHUNK / 2);
    upper
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_an_ordered_map(
            steps in prop::collection::vec((any::<bool>(), 1u64..40, 0u64..60), 1..1500),
        ) {
            let (mut set, mut map) = (FreeSet::default(), BTreeMap::new());
            for (i, (add, size, order)) in steps.into_iter().enumerate() {
                if map.remove(&(size, order)).is_some() {
                    set.remove(size, order);
                } else if add {
                    set.insert(size, order, i as u32);
                    map.insert((size, order), i as u32);
                }
                let want = map.range((size, 0)..).next().map(|(k, v)| (k.0, k.1, *v));
                let found = set.at_least(size).map(|c| set.get(c));
                prop_assert_eq!(found.map(|e| (e.size, e.order, e.block)), want);
                let below = map.range(..(size, 0)).next_back().map(|(k, _)| *k);
                prop_assert_eq!(set.last_below(size).map(|c| (set.get(c).size, set.get(c).order)), below);
                if let Some(at) = set.at_least(size) {
                    let second = map.range((size, 0)..).nth(1).map(|(k, _)| *k);
                    prop_assert_eq!(set.next(at).map(|c| (set.get(c).size, set.get(c).order)), second);
                }
            }
            prop_assert_eq!(set.len(), map.len());
            prop_assert!(set.iter().map(|e| (e.size, e.order)).eq(map.keys().copied()));
        }
    }
}

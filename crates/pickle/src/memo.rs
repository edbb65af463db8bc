//! The memo: objects that a pickle refers to again by number.

use std::collections::BTreeMap;

use crate::value::Value;

/// How many numbers may be left out in the dense part.
const MAX_HOLES: u64 = 4096;

/// Memo entries: a vector where the numbers follow each other, as picklers write them, and a map for
/// numbers that lie far apart.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    dense: Dense,
    /// Entries of `dense` that were never stored.
    holes: usize,
    sparse: BTreeMap<u64, Value>,
}

/// Handles in four bytes each as long as all of them fit, in eight from then on. A history has two memo
/// entries for each event, so this is a good part of the memory that reading takes.
#[derive(Debug, Default)]
struct Dense {
    narrow: Vec<u32>,
    /// Empty, or instead of `narrow`.
    wide: Vec<Value>,
}

impl Dense {
    #[inline]
    fn len(&self) -> usize {
        self.narrow.len().max(self.wide.len())
    }

    #[inline]
    fn get(&self, index: u64) -> Option<Value> {
        let index = usize::try_from(index).ok()?;
        match self.narrow.get(index) {
            Some(narrow) => Some(Value::widened(*narrow)),
            None => self.wide.get(index).copied(),
        }
    }

    /// Changes the entry at `index`, or adds one if that is the end.
    #[inline]
    fn set(&mut self, index: usize, value: Value) {
        match value.narrowed() {
            Some(narrow) if self.wide.is_empty() => match self.narrow.get_mut(index) {
                Some(entry) => *entry = narrow,
                None => self.narrow.push(narrow),
            },
            _ => self.set_wide(index, value),
        }
    }

    #[cold]
    fn set_wide(&mut self, index: usize, value: Value) {
        if self.wide.is_empty() {
            self.wide = self.narrow.iter().map(|n| Value::widened(*n)).collect();
            self.narrow = Vec::new();
        }
        match self.wide.get_mut(index) {
            Some(entry) => *entry = value,
            None => self.wide.push(value),
        }
    }
}

impl Memo {
    /// Number of entries; the index that `MEMOIZE` uses next.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        (self.dense.len() - self.holes + self.sparse.len()) as u64
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<Value> {
        match self.dense.get(index) {
            Some(v) if v != Value::ABSENT => Some(v),
            _ => self.sparse.get(&index).copied(),
        }
    }

    /// The entry, if it is one that can be used without a further thought: no container and no hole.
    #[inline(always)]
    pub(crate) fn get_plain(&self, index: u32) -> Option<Value> {
        let narrow = *self.dense.narrow.get(index as usize)?;
        Value::is_plain(narrow).then(|| Value::widened(narrow))
    }

    #[inline]
    pub(crate) fn put(&mut self, index: u64, value: Value) {
        let len = self.dense.len();
        if index == len as u64 && self.sparse.is_empty() {
            self.dense.set(len, value);
        } else {
            self.put_anywhere(index, value);
        }
    }

    #[cold]
    fn put_anywhere(&mut self, index: u64, value: Value) {
        let len = self.dense.len() as u64;
        if index < len && !self.sparse.contains_key(&index) {
            self.holes -= usize::from(self.dense.get(index) == Some(Value::ABSENT));
            self.dense.set(index as usize, value);
        } else if self.sparse.is_empty()
            && index >= len
            && index - len + self.holes as u64 <= MAX_HOLES
        {
            self.holes += (index - len) as usize;
            for hole in len..index {
                self.dense.set(hole as usize, Value::ABSENT);
            }
            self.dense.set(index as usize, value);
        } else {
            self.sparse.insert(index, value);
        }
    }

    /// Changes an entry that still holds `old`.
    #[inline]
    pub(crate) fn replace(&mut self, index: u32, old: Value, new: Value) {
        if self.dense.get(index.into()) == Some(old) {
            self.dense.set(index as usize, new);
        } else if let Some(entry) = self.sparse.get_mut(&u64::from(index))
            && *entry == old
        {
            *entry = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_apart_numbers_cost_nothing_and_the_count_is_of_entries() {
        let mut memo = Memo::default();
        memo.put(5, Value::TRUE);
        assert_eq!((memo.count(), memo.get(5), memo.get(4)), (1, Some(Value::TRUE), None));
        memo.put(u64::from(u32::MAX), Value::FALSE);
        assert!(memo.dense.len() < 10);
        assert_eq!(memo.count(), 2);
        memo.put(2, Value::NONE);
        assert_eq!((memo.count(), memo.get(2)), (3, Some(Value::NONE)));
        memo.put(6, Value::NONE);
        assert_eq!((memo.count(), memo.get(6)), (4, Some(Value::NONE)));
        memo.put(6, Value::TRUE);
        assert_eq!((memo.count(), memo.get(6)), (4, Some(Value::TRUE)));
        memo.replace(6, Value::TRUE, Value::FALSE);
        assert_eq!(memo.get(6), Some(Value::FALSE));
        memo.replace(5, Value::FALSE, Value::NONE);
        assert_eq!(memo.get(5), Some(Value::TRUE));
    }

    #[test]
    fn entries_survive_the_step_from_four_bytes_to_eight() {
        let mut memo = Memo::default();
        let large = Value::small(1 << 50).unwrap();
        memo.put(0, Value::from(7));
        memo.put(1, Value::NONE);
        memo.put(3, large);
        memo.put(4, Value::FALSE);
        let all: Vec<_> = (0..6).map(|i| memo.get(i)).collect();
        let expected =
            [Some(Value::from(7)), Some(Value::NONE), None, Some(large), Some(Value::FALSE), None];
        assert_eq!(all, expected);
        assert_eq!(memo.count(), 4);
    }
}

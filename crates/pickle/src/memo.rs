//! The memo: objects that a pickle refers to again by number.

use std::collections::BTreeMap;

use crate::value::Value;

/// How far beyond the end of the dense part an index may lie and still extend it.
const GAP: u64 = 1024;

/// Memo entries: a vector where the numbers follow each other, as picklers write them, and a map for
/// numbers that lie far apart.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    dense: Vec<Value>,
    /// Entries of `dense` that were never stored.
    holes: usize,
    sparse: BTreeMap<u64, Value>,
}

impl Memo {
    /// Number of entries; the index that `MEMOIZE` uses next.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        (self.dense.len() - self.holes + self.sparse.len()) as u64
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<Value> {
        match self.dense.get(index as usize) {
            Some(v) if *v != Value::ABSENT => Some(*v),
            _ => self.sparse.get(&index).copied(),
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, index: u64, value: Value) {
        if index == self.dense.len() as u64 && self.sparse.is_empty() {
            self.dense.push(value);
        } else {
            self.put_anywhere(index, value);
        }
    }

    fn put_anywhere(&mut self, index: u64, value: Value) {
        let len = self.dense.len() as u64;
        if let Some(entry) = self.dense.get_mut(index as usize)
            && !self.sparse.contains_key(&index)
        {
            self.holes -= usize::from(*entry == Value::ABSENT);
            *entry = value;
        } else if self.sparse.is_empty() && index >= len && index - len < GAP {
            self.holes += (index - len) as usize;
            self.dense.resize(index as usize, Value::ABSENT);
            self.dense.push(value);
        } else {
            self.sparse.insert(index, value);
        }
    }

    /// Changes an entry that still holds `old`.
    #[inline]
    pub(crate) fn replace(&mut self, index: u32, old: Value, new: Value) {
        if let Some(entry) = self.dense.get_mut(index as usize)
            && *entry == old
        {
            *entry = new;
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
}

//! Which rows belong to a list.

use std::ops::Range;

/// Row numbers as ranges, of which there usually is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowList {
    ranges: Vec<Range<u32>>,
}

impl RowList {
    pub(crate) fn push(&mut self, row: u32) {
        match self.ranges.last_mut() {
            Some(range) if range.end == row => range.end += 1,
            _ => self.ranges.push(row..row + 1),
        }
    }

    pub(crate) fn range(&self) -> Option<Range<u32>> {
        match self.ranges.as_slice() {
            [range] => Some(range.clone()),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().cloned().flatten()
    }
}

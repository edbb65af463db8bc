//! What the program itself put into device memory, and no kernel can have changed since.
//!
//! Kernels do nothing here, so after one of them any memory may differ from what a card would hold: a block that is
//! used again still has the numbers of whoever had it before, and a program that takes those for a size asks for
//! gigabytes. Only what was copied or filled after the last kernel is certain.

use std::collections::VecDeque;

/// Ranges kept; programs copy a few tensors between kernels.
const MOST: usize = 1024;

/// Ranges of device memory with certain contents, as (start, end), oldest first.
#[derive(Debug, Default)]
pub(crate) struct Carried(VecDeque<(u64, u64)>);

impl Carried {
    /// A copy or fill gave these bytes their contents.
    pub(crate) fn written(&mut self, start: u64, bytes: u64) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((start, start.saturating_add(bytes)));
    }

    /// These bytes hold nothing certain any more.
    pub(crate) fn lost(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        self.0.retain(|&(from, to)| to <= start || from >= end);
    }

    /// A kernel ran, which may have written anywhere.
    pub(crate) fn kernel_ran(&mut self) {
        self.0.clear();
    }

    /// Whether all these bytes came from one copy or fill, with no kernel behind it.
    pub(crate) fn holds(&self, start: u64, bytes: u64) -> bool {
        let end = start.saturating_add(bytes);
        self.0.iter().any(|&(from, to)| from <= start && end <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_certain_until_a_kernel_runs() {
        let mut carried = Carried::default();
        carried.written(4096, 16);
        assert!(carried.holds(4096, 16) && carried.holds(4100, 4));
        assert!(!carried.holds(4096, 17) && !carried.holds(4092, 8));
        carried.kernel_ran();
        assert!(!carried.holds(4096, 16));
    }

    #[test]
    fn what_is_overwritten_by_something_unknown_is_lost() {
        let mut carried = Carried::default();
        carried.written(0, 16);
        carried.written(16, 16);
        carried.lost(8, 4);
        assert!(!carried.holds(0, 4) && carried.holds(16, 16));
    }

    #[test]
    fn the_oldest_range_goes_first() {
        let mut carried = Carried::default();
        (0..=MOST as u64).for_each(|n| carried.written(n * 8, 8));
        assert!(!carried.holds(0, 8) && carried.holds(8, 8));
    }
}

//! §7: counters, kept by the rules, and current values added up from the blocks.

use vramwise_model::stats::{Family, Stats};

use super::Reference;
use vramwise_model::device::Device;

/// (current, peak, allocated, freed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quadruple(pub [i64; 4]);

impl Quadruple {
    pub(super) fn add(&mut self, x: i64) {
        let [current, peak, allocated, freed] = &mut self.0;
        *current += x;
        if x > 0 {
            *allocated += x;
            *peak = (*peak).max(*current);
        } else {
            *freed += -x;
        }
    }
}

/// All families in the model's order.
pub(super) const FAMILIES: [Family; 9] = [
    Family::Allocation,
    Family::Segment,
    Family::Active,
    Family::InactiveSplit,
    Family::AllocatedBytes,
    Family::ReservedBytes,
    Family::ActiveBytes,
    Family::InactiveSplitBytes,
    Family::RequestedBytes,
];

/// `[family][all, small, large]`.
pub type Sums = [[i64; 3]; 9];

/// The counters of `memory_stats()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    /// `[family][all, small, large]`.
    pub families: [[Quadruple; 3]; 9],
    pub oversize_allocations: Quadruple,
    pub oversize_segments: Quadruple,
    pub num_alloc_retries: i64,
    pub num_ooms: i64,
    pub num_sync_all_streams: i64,
    pub num_device_alloc: i64,
    pub num_device_free: i64,
}

impl Counters {
    pub(super) fn add(&mut self, family: Family, small: bool, x: i64) {
        let of_family = &mut self.families[family as usize];
        of_family[0].add(x);
        of_family[if small { 1 } else { 2 }].add(x);
    }

    fn each(&mut self, mut f: impl FnMut(&mut [i64; 4])) {
        self.families.iter_mut().flatten().for_each(|q| f(&mut q.0));
        f(&mut self.oversize_allocations.0);
        f(&mut self.oversize_segments.0);
    }

    /// peak = current.
    pub fn reset_peak(&mut self) {
        self.each(|q| q[1] = q[0]);
    }

    /// allocated = freed = 0, and the five numbers.
    pub fn reset_accumulated(&mut self) {
        self.each(|q| (q[2], q[3]) = (0, 0));
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }

    /// The same counters as the model gives them.
    pub fn of_model(stats: &Stats) -> Self {
        let quadruple =
            |s: vramwise_model::stats::Stat| Quadruple([s.current, s.peak, s.allocated, s.freed]);
        Self {
            families: FAMILIES
                .map(|f| [stats.all(f), stats.pool(f, true), stats.pool(f, false)].map(quadruple)),
            oversize_allocations: quadruple(stats.oversize_allocations),
            oversize_segments: quadruple(stats.oversize_segments),
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_sync_all_streams: stats.num_sync_all_streams,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
        }
    }

    /// The current values of the nine families.
    pub fn current(&self) -> Sums {
        self.families.map(|of_family| of_family.map(|q| q.0[0]))
    }
}

impl<D: Device> Reference<D> {
    /// §3.5: the current values, added up from the blocks.
    pub fn sums(&self) -> Sums {
        let mut sums = [[0; 3]; 9];
        for segment in &self.segments {
            let half = if segment.small { 1 } else { 2 };
            let mut add = |family: Family, x: i64| {
                sums[family as usize][0] += x;
                sums[family as usize][half] += x;
            };
            let ordinary = segment.granule.is_none();
            if ordinary {
                add(Family::Segment, 1);
            }
            for block in segment.blocks.iter().filter(|b| b.mapped) {
                let size = super::signed(block.size);
                add(Family::ReservedBytes, size);
                if block.allocated {
                    add(Family::Allocation, 1);
                    add(Family::AllocatedBytes, size);
                }
                if !block.is_free() {
                    add(Family::Active, 1);
                    add(Family::ActiveBytes, size);
                    add(Family::RequestedBytes, super::signed(block.requested));
                } else if ordinary && segment.blocks.len() > 1 {
                    add(Family::InactiveSplit, 1);
                    add(Family::InactiveSplitBytes, size);
                }
            }
        }
        sums
    }
}

//! The counters of `torch.cuda.memory_stats()`.
//!
//! Specification §7, PyTorch 2.11: nine families for three pool types with four metrics each, two
//! oversize families, and scalars. Units: bytes for the families ending in `_bytes`, else a number.

use vramwise_types::TorchVersion;

/// Counter families that exist for all pools, the small and the large pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)] // PyTorch's own names, listed in the specification
pub enum Family {
    Allocation,
    Segment,
    Active,
    InactiveSplit,
    AllocatedBytes,
    ReservedBytes,
    ActiveBytes,
    InactiveSplitBytes,
    RequestedBytes,
}

/// Names of [`Family`], in its order.
const FAMILIES: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];

const POOLS: [&str; 3] = ["all", "small_pool", "large_pool"];

/// One counter with its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Value now.
    pub current: i64,
    /// Highest value so far.
    pub peak: i64,
    /// Sum of all increases.
    pub allocated: i64,
    /// Sum of all decreases.
    pub freed: i64,
}

impl Stat {
    /// Adds a signed change: a positive one counts as allocated, a negative one as freed. The sums of
    /// an absurd recording wrap around, as 64-bit counters do.
    #[inline]
    pub(crate) fn change(&mut self, by: i64) {
        self.current = self.current.wrapping_add(by);
        if by >= 0 {
            self.peak = self.peak.max(self.current);
            self.allocated = self.allocated.wrapping_add(by);
        } else {
            self.freed = self.freed.wrapping_sub(by);
        }
    }

    fn metrics(self) -> [(&'static str, i64); 4] {
        [
            ("allocated", self.allocated),
            ("current", self.current),
            ("freed", self.freed),
            ("peak", self.peak),
        ]
    }
}

/// All counters of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// `[family][all, small, large]`.
    families: [[Stat; 3]; 9],
    /// Allocations whose block is at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// `max_split_size` when the device's allocator was built; −1 = unlimited.
    pub max_split_size: i64,
    /// Device attempts made after the cache was released.
    pub num_alloc_retries: i64,
    /// `OutOfMemoryError`s raised.
    pub num_ooms: i64,
    /// Times that all streams were waited for.
    pub num_sync_all_streams: i64,
    /// Successful `cudaMalloc` calls and map operations.
    pub num_device_alloc: i64,
    /// `cudaFree` calls and unmap operations.
    pub num_device_free: i64,
}

impl Stats {
    pub(crate) fn new(max_split_size: u64) -> Self {
        Self {
            families: Default::default(),
            oversize_allocations: Stat::default(),
            oversize_segments: Stat::default(),
            max_split_size: i64::try_from(max_split_size).unwrap_or(-1),
            num_alloc_retries: 0,
            num_ooms: 0,
            num_sync_all_streams: 0,
            num_device_alloc: 0,
            num_device_free: 0,
        }
    }

    /// The counter of a family over all pools.
    pub fn all(&self, family: Family) -> Stat {
        self.families[family as usize][0]
    }

    /// The counter of a family for the small (`true`) or the large pool.
    pub fn pool(&self, family: Family, small: bool) -> Stat {
        self.families[family as usize][if small { 1 } else { 2 }]
    }

    #[inline]
    pub(crate) fn change(&mut self, family: Family, small: bool, by: i64) {
        let stats = &mut self.families[family as usize];
        stats[0].change(by);
        stats[if small { 1 } else { 2 }].change(by);
    }

    /// `torch.cuda.reset_peak_memory_stats()` (§7.2).
    pub fn reset_peak(&mut self) {
        self.for_each_stat(|stat| stat.peak = stat.current);
    }

    /// `torch.cuda.reset_accumulated_memory_stats()` (§7.2).
    pub fn reset_accumulated(&mut self) {
        self.for_each_stat(|stat| {
            stat.allocated = 0;
            stat.freed = 0;
        });
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }

    fn for_each_stat(&mut self, mut f: impl FnMut(&mut Stat)) {
        self.families.iter_mut().flatten().for_each(&mut f);
        f(&mut self.oversize_allocations);
        f(&mut self.oversize_segments);
    }

    /// Every key of `torch.cuda.memory_stats()` in that version, sorted by key: 122 in 2.11.
    pub fn to_pairs(&self, version: TorchVersion) -> Vec<(String, i64)> {
        let mut pairs = Vec::with_capacity(123);
        for (family, stats) in FAMILIES.iter().zip(&self.families) {
            for (pool, stat) in POOLS.iter().zip(stats) {
                pairs.extend(stat.metrics().map(|(m, v)| (format!("{family}.{pool}.{m}"), v)));
            }
        }
        for (name, stat) in [
            ("oversize_allocations", self.oversize_allocations),
            ("oversize_segments", self.oversize_segments),
        ] {
            pairs.extend(stat.metrics().map(|(m, v)| (format!("{name}.{m}"), v)));
        }
        let mut scalars = vec![
            ("max_split_size", self.max_split_size),
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
        ];
        if version.at_least_2(12) {
            // Rejections before the driver is asked need `throw_on_cudamalloc_oom`, which no history shows.
            scalars.push(("num_oom_rejections", 0));
        }
        pairs.extend(scalars.into_iter().map(|(k, v)| (k.to_owned(), v)));
        pairs.sort();
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_122_keys_in_2_11_and_one_more_in_2_12() {
        let stats = Stats::new(u64::MAX);
        let pairs = stats.to_pairs(TorchVersion::new(2, 11));
        assert_eq!(pairs.len(), 122);
        assert!(pairs.is_sorted());
        assert!(pairs.contains(&("max_split_size".to_owned(), -1)));
        assert_eq!(stats.to_pairs(TorchVersion::new(2, 12)).len(), 123);
    }

    #[test]
    fn resets_keep_what_is_current() {
        let mut stats = Stats::new(32 << 20);
        assert_eq!(stats.max_split_size, 32 << 20);
        stats.change(Family::Allocation, true, 3);
        stats.change(Family::Allocation, true, -2);
        stats.reset_peak();
        stats.reset_accumulated();
        let expected = Stat { current: 1, peak: 1, allocated: 0, freed: 0 };
        assert_eq!(stats.all(Family::Allocation), expected);
        assert_eq!(stats.pool(Family::Allocation, true), expected);
        assert_eq!(stats.pool(Family::Allocation, false), Stat::default());
    }
}

//! Pools: sets of free memory that never mix, each in a small and a large half.

use std::collections::BTreeMap;

use crate::free_set::FreeSet;

/// A pool: 0 is the default one, the others are private (CUDA graphs, `MemPool`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolIndex(pub u32);

impl PoolIndex {
    /// The device's default pool.
    pub const DEFAULT: PoolIndex = PoolIndex(0);

    pub(crate) fn half(self, small: bool) -> u32 {
        2 * self.0 + u32::from(!small)
    }
}

/// How a private pool behaves (specification §3.1, §4 step 5.3, §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Blocks of the pool are never split (`MemPool(no_split=True)`, 2.11 and later).
    pub no_split: bool,
    /// Requests of the default pool may fall back to this pool (`MemPool(use_on_oom=True)`).
    pub use_on_oom: bool,
    /// The pool takes its segments from an allocator of its own, and so never expandable ones.
    pub own_allocator: bool,
}

/// One half of a pool: the free memory of one size class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Half {
    /// Free mapped blocks, per stream index.
    pub(crate) free: Vec<FreeSet>,
    /// Unmapped blocks of expandable segments by address, per stream index.
    pub(crate) unmapped: Vec<BTreeMap<u64, u32>>,
    /// Counts lookups while garbage collection is armed (§2.2 step 1).
    pub(crate) lookups: u64,
}

impl Half {
    pub(crate) fn free_of(&mut self, stream: u32) -> &mut FreeSet {
        let i = stream as usize;
        if i >= self.free.len() {
            self.free.resize_with(i + 1, FreeSet::default);
        }
        &mut self.free[i]
    }

    pub(crate) fn unmapped_of(&mut self, stream: u32) -> &mut BTreeMap<u64, u32> {
        let i = stream as usize;
        if i >= self.unmapped.len() {
            self.unmapped.resize_with(i + 1, BTreeMap::new);
        }
        &mut self.unmapped[i]
    }
}

/// State of a pool beyond its free memory.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) options: PoolOptions,
    /// Users: the `MemPool` object or graph, and each begun routing (§5.7).
    pub(crate) users: u32,
    /// Device requests minus returns; the record is dropped when it is 0 and nobody uses the pool (§6.7).
    pub(crate) segments: i64,
    pub(crate) halves: [Half; 2],
}

impl Pool {
    pub(crate) fn new(options: PoolOptions, users: u32) -> Self {
        Self { options, users, segments: 0, halves: Default::default() }
    }
}

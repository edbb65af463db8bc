//! Which pool each allocation and each released segment belongs to.
//!
//! History entries carry no pool, so it is inferred (specification §16.3): first everything is taken for
//! the default pool; only where that contradicts the history are segments assigned to private pools.

mod colour;
mod layout;
mod parts;

use rustc_hash::FxHashMap;
use vramwise_model::PoolIndex;
use vramwise_trace::DeviceTrace;

use crate::history::History;
use crate::program::ReleaseScope;
use crate::verify::Setup;

/// Pools of the entries of a history.
#[derive(Clone, Debug)]
pub(crate) struct PoolMap {
    /// Pool ids as in snapshots; index 0 is the default pool. Inferred pools without a known id get
    /// numbers that no snapshot uses.
    ids: Vec<(u64, u64)>,
    /// Entries (alloc, release) outside the default pool.
    private: FxHashMap<u32, PoolIndex>,
    /// Release entries of small pools.
    small: FxHashMap<u32, bool>,
}

impl PoolMap {
    /// Everything in the default pool.
    pub(crate) fn all_default() -> Self {
        Self { ids: vec![(0, 0)], private: FxHashMap::default(), small: FxHashMap::default() }
    }

    /// Infers pools; `None` where even the layout of segments does not fit an allocator.
    pub(crate) fn infer(history: &History, device: &DeviceTrace, setup: &Setup) -> Option<Self> {
        let layout = layout::Layout::of(history, setup)?;
        let ids = snapshot_pools(device);
        let (assignment, pools) = colour::assign(&layout, device, &ids);
        let mut map = Self::all_default();
        let unnamed = (1..).map(|n| (u64::MAX, n));
        let names = ids.into_iter().chain(unnamed.take(pools));
        map.ids = names.take(pools.max(1)).collect();
        for (entry, segment) in layout.entries() {
            let pool = assignment[segment as usize];
            if pool != 0 {
                map.private.insert(entry, PoolIndex(pool));
            }
            map.small.insert(entry, layout.is_small(segment));
        }
        Some(map)
    }

    /// Number of pools, the default one included.
    pub(crate) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Ids of the pools by index.
    pub(crate) fn ids(&self) -> &[(u64, u64)] {
        &self.ids
    }

    pub(crate) fn of_alloc(&self, entry: usize) -> PoolIndex {
        self.of_release(entry)
    }

    pub(crate) fn of_release(&self, entry: usize) -> PoolIndex {
        if self.private.is_empty() {
            return PoolIndex::DEFAULT;
        }
        let entry = u32::try_from(entry).unwrap_or(u32::MAX);
        self.private.get(&entry).copied().unwrap_or(PoolIndex::DEFAULT)
    }

    /// The calls that made the releases `at..end`, in order: a new call begins where the order inside
    /// one call (default large, default small, then per private pool small, large) is broken.
    pub(crate) fn calls(&self, history: &History, at: usize, end: usize) -> Vec<ReleaseScope> {
        if self.count() == 1 || at == end {
            return vec![ReleaseScope { default: true, private: Vec::new() }];
        }
        let mut order = parts::CallOrder::default();
        let mut calls: Vec<ReleaseScope> = Vec::new();
        let mut last = None;
        for entry in at..end.min(history.len()) {
            let pool = self.of_release(entry);
            let small =
                self.small.get(&u32::try_from(entry).unwrap_or(0)).copied().unwrap_or(false);
            if last == Some((pool, small)) {
                continue;
            }
            last = Some((pool, small));
            if order.push(pool.0, small) {
                calls.push(ReleaseScope { default: false, private: Vec::new() });
            }
            let Some(call) = calls.last_mut() else { continue };
            if pool == PoolIndex::DEFAULT {
                call.default = true;
            } else if !call.private.contains(&pool) {
                call.private.push(pool);
            }
        }
        calls
    }
}

/// The pools that a snapshot names, the default one first, then ascending.
pub(crate) fn snapshot_pools(device: &DeviceTrace) -> Vec<(u64, u64)> {
    let mut ids: Vec<_> =
        device.segments.iter().map(|s| s.pool_id).filter(|id| *id != (0, 0)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.insert(0, (0, 0));
    ids
}

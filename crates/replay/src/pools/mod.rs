//! Which pool each allocation and each released segment belongs to.
//!
//! From PyTorch 2.12 on history entries name their pool. Older ones do not, so it is inferred
//! (specification §16.3): first everything is taken for the default pool; only where that contradicts the
//! history are segments assigned to private pools.

mod cluster;
mod known;
mod layout;
mod order;
mod stretch;
mod told;

pub(crate) use known::by_segments;
pub(crate) use told::told;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;
use vramwise_model::{PoolIndex, PoolOptions};
use vramwise_trace::DeviceTrace;
use vramwise_types::Action;

use crate::checker::Mismatch;
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
    /// Pools whose blocks are never split, ascending.
    whole: Vec<PoolIndex>,
    /// Whether the history names the pools, those of failed requests included.
    told: bool,
}

impl PoolMap {
    /// Everything in the default pool.
    pub(crate) fn all_default() -> Self {
        Self {
            ids: vec![(0, 0)],
            private: FxHashMap::default(),
            small: FxHashMap::default(),
            whole: Vec::new(),
            told: false,
        }
    }

    /// Whether the history names the pools, those of failed requests included.
    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    fn of(layout: &layout::Layout, ids: &[(u64, u64)], assigned: &cluster::Assignment) -> Self {
        let mut map = Self::all_default();
        let unnamed = (1..).map(|n| (u64::MAX, n));
        let names = ids.iter().copied().chain(unnamed.take(assigned.count + 1));
        // One more for requests that failed in a pool that holds nothing.
        let spare = usize::from(assigned.count > 1);
        map.ids = names.take(assigned.count.max(1) + spare).collect();
        map.whole = assigned.whole.iter().map(|pool| PoolIndex(*pool)).collect();
        for (entry, segment) in layout.entries() {
            let pool = assigned.pools[segment as usize];
            if pool != 0 {
                map.private.insert(entry, PoolIndex(pool));
            }
            map.small.insert(entry, layout.is_small(segment));
        }
        map
    }

    /// Number of pools, the default one included.
    pub(crate) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Ids of the pools by index.
    pub(crate) fn ids(&self) -> &[(u64, u64)] {
        &self.ids
    }

    /// Options of a pool.
    pub(crate) fn options(&self, pool: PoolIndex) -> PoolOptions {
        PoolOptions { no_split: self.whole.contains(&pool), ..PoolOptions::default() }
    }

    /// Pools whose blocks are never split.
    pub(crate) fn whole(&self) -> &[PoolIndex] {
        &self.whole
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

    /// The pools of the releases `at..end` in the order of their first release, without the default one.
    pub(crate) fn released(&self, history: &History, at: usize, end: usize) -> Vec<PoolIndex> {
        let mut pools = Vec::new();
        if self.private.is_empty() {
            return pools;
        }
        for entry in at..end.min(history.len()) {
            let pool = self.of_release(entry);
            let counts = history.entries[entry].action.is_release() && pool != PoolIndex::DEFAULT;
            if counts && !pools.contains(&pool) {
                pools.push(pool);
            }
        }
        pools
    }

    /// The calls that made the releases `at..end`, in order, each with the entry behind its last: a new
    /// call begins where the order inside one call (default large, default small, then per private pool
    /// small, large) is broken.
    pub(crate) fn calls(
        &self,
        history: &History,
        at: usize,
        end: usize,
    ) -> Vec<(ReleaseScope, usize)> {
        if self.count() == 1 || at == end {
            return vec![(ReleaseScope { default: true, private: Vec::new() }, end)];
        }
        let mut order = order::CallOrder::default();
        let mut calls: Vec<(ReleaseScope, usize)> = Vec::new();
        let mut last = None;
        for entry in at..end.min(history.len()) {
            let pool = self.of_release(entry);
            let small =
                self.small.get(&u32::try_from(entry).unwrap_or(0)).copied().unwrap_or(false);
            let new_part = last != Some((pool, small));
            last = Some((pool, small));
            if new_part && order.push(pool.0, small) {
                calls.push((ReleaseScope { default: false, private: Vec::new() }, entry));
            }
            let Some((call, behind)) = calls.last_mut() else { continue };
            *behind = entry + 1;
            if pool == PoolIndex::DEFAULT {
                call.default = true;
            } else if !call.private.contains(&pool) {
                call.private.push(pool);
            }
        }
        calls
    }
}

/// Pools inferred from a history, and mended where the replay shows them wrong.
pub(crate) struct Inference<'a> {
    history: &'a History,
    setup: &'a Setup,
    /// Whether pools may be taken for such that never split.
    unsplit: bool,
    layout: layout::Layout,
    whole: FxHashSet<u32>,
    ids: Vec<(u64, u64)>,
    known: Vec<Option<u32>>,
    /// Whether garbage is collected, from the default pool whatever the request's.
    collects: bool,
}

impl<'a> Inference<'a> {
    /// `None` where even the layout of segments does not fit an allocator.
    pub(crate) fn of(
        history: &'a History,
        device: &DeviceTrace,
        setup: &'a Setup,
        unsplit: bool,
    ) -> Option<Self> {
        let mut whole = FxHashSet::default();
        let layout = layout::Layout::of(history, setup, &mut whole)?;
        let ids = snapshot_pools(device);
        let mut known = known_at_end(&layout, device, &ids);
        for (entry, segment) in layout.entries() {
            if let Some(pool) = history.told_pool(entry as usize) {
                known[segment as usize] = Some(pool.0);
            }
        }
        let collects = setup.config.garbage_collection_threshold > 0.0 && setup.limit.is_some();
        Some(Self { history, setup, unsplit, layout, whole, ids, known, collects })
    }

    /// Whether other pools come out if pools may be such that never split.
    pub(crate) fn depends_on_splits(&self) -> bool {
        !self.layout.ties.only_whole.is_empty()
    }

    /// The pools as far as they are known.
    pub(crate) fn map(&mut self) -> PoolMap {
        loop {
            let ids = self.ids.len();
            let assigned = cluster::assign(&mut self.layout, &self.known, ids, self.unsplit);
            let before = self.whole.len();
            let segments = (0..).zip(&assigned.pools);
            self.whole.extend(segments.filter(|(_, p)| assigned.whole.contains(p)).map(|(s, _)| s));
            if self.whole.len() == before || !self.lay_out_again() {
                return PoolMap::of(&self.layout, &self.ids, &assigned);
            }
        }
    }

    /// Blocks lie elsewhere where nothing is split.
    fn lay_out_again(&mut self) -> bool {
        let again = layout::Layout::of(self.history, self.setup, &mut self.whole);
        let Some(mut layout) = again else { return false };
        let same = layout.count() == self.layout.count();
        if same {
            layout.learnt = std::mem::take(&mut self.layout.learnt);
            layout.apply_learnt();
            self.layout = layout;
        }
        same
    }

    /// Learns from a replay that went wrong: where the model took or returned something that the
    /// recording did not, that is in another pool. Says whether anything was learnt.
    pub(crate) fn learn(&mut self, mismatch: &Mismatch) -> bool {
        let history = self.history;
        let learnt = self.learn_from(history, mismatch);
        self.layout.apply_learnt();
        learnt
    }

    fn learn_from(&mut self, history: &History, mismatch: &Mismatch) -> bool {
        let Some(got) = mismatch.got else { return false };
        if let Some(want) = history.entries.get(mismatch.at)
            && want.action.is_release()
            && !got.action.is_release()
        {
            return self.learn_release(history, mismatch.at, want.addr);
        }
        let Some(of_model) = self.layout.segment_at(got.addr, mismatch.at) else { return false };
        let released = got.action.is_release();
        if !released && got.action != Action::Alloc {
            return false;
        }
        // What the recording did there: growth and a failed request point to what follows.
        let Some(want) = history.entries.get(mismatch.at) else { return false };
        let other = match want.action {
            Action::Oom => {
                // It returned oversize segments of its pool, or nothing; garbage is of the default pool.
                let before = mismatch.at.checked_sub(1).map(|at| (at, history.entries[at]));
                match before.filter(|(_, e)| e.action.is_release()) {
                    Some((at, e)) => self.layout.segment_at(e.addr, at),
                    None if self.collects && released => {
                        return self.layout.learnt.private.insert(of_model);
                    }
                    None => return false,
                }
            }
            _ => self.layout.segment_at(want.addr, mismatch.at),
        };
        let Some(other) = other.filter(|o| *o != of_model) else { return false };
        let both = layout::pair(of_model, other);
        if released && !want.action.is_release() && want.action != Action::Oom {
            // The malloc flushed nothing, or not that: it was routed, or that was in use.
            let garbage = self.collects && self.layout.learnt.private.insert(of_model);
            return garbage || self.layout.learnt.private.insert(other);
        }
        self.layout.learnt.different.insert(both)
    }

    /// The malloc at hand returned something that the model's did not: garbage, from the default pool, or
    /// an oversize segment of its own pool.
    fn learn_release(&mut self, history: &History, at: usize, addr: u64) -> bool {
        let Some(released) = self.layout.segment_at(addr, at) else { return false };
        let behind = history.entries[at..].iter().position(|e| e.action == Action::Alloc);
        let own = behind.and_then(|n| {
            let entry = &history.entries[at + n];
            self.layout.segment_at(entry.addr, at + n)
        });
        let default = |layout: &mut layout::Layout| layout.learnt.default.insert(released);
        if self.collects && default(&mut self.layout) {
            return true;
        }
        match own.filter(|own| *own != released) {
            Some(own) if self.layout.learnt.same.insert(layout::pair(own, released)) => true,
            _ => default(&mut self.layout),
        }
    }
}

/// Segments alive at the end are in the snapshot, with their pool.
fn known_at_end(
    layout: &layout::Layout,
    device: &DeviceTrace,
    ids: &[(u64, u64)],
) -> Vec<Option<u32>> {
    let pools: BTreeMap<u64, u32> = device
        .segments
        .iter()
        .filter_map(|s| {
            let pool = ids.iter().position(|id| *id == s.pool_id)?;
            Some((s.address, u32::try_from(pool).ok()?))
        })
        .collect();
    let pool_of = |s: &layout::Segment| {
        let end = if s.expandable { s.end } else { s.addr + 1 };
        pools.range(s.addr..end).next().map(|(_, pool)| *pool)
    };
    layout.segments.iter().map(|s| if s.alive { pool_of(s) } else { None }).collect()
}

/// The pools that a snapshot names, ascending: the default one, `(0, 0)`, is the first.
pub(crate) fn snapshot_pools(device: &DeviceTrace) -> Vec<(u64, u64)> {
    let of_events = device.events.pool_id.iter().map(|(_, id)| *id);
    let of_segments = device.segments.iter().map(|s| s.pool_id);
    let ids: BTreeSet<_> = of_segments.chain(of_events).filter(|id| *id != (0, 0)).collect();
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.insert(0, (0, 0));
    ids
}

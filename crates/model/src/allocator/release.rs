//! Returning memory to the device: `empty_cache`, flushes, garbage collection (specification §4.2, §4.4,
//! §5.6).

use vramwise_types::Action;

use super::{Allocator, signed};
use crate::block::{Block, EXPANDABLE};
use crate::device::Device;
use crate::history::Recorder;
use crate::pool::PoolIndex;
use crate::stats::Family;

use super::malloc::Request;

/// What a release of the cache covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Waits for all streams and releases the default pool.
    default: bool,
    /// Private pools, in this order; `None` = all without users, ascending.
    private: Option<Vec<PoolIndex>>,
}

impl Scope {
    /// `empty_cache()` and the flush before a retry: the default pool and every private pool without
    /// users.
    pub fn everything() -> Self {
        Self { default: true, private: None }
    }

    /// The end of one `MemPool`.
    pub fn pool(pool: PoolIndex) -> Self {
        Self { default: false, private: Some(vec![pool]) }
    }

    /// `empty_cache()` where it is known which private pools had no users: the default pool, then
    /// these in this order.
    pub fn exactly(default: bool, private: Vec<PoolIndex>) -> Self {
        Self { default, private: Some(private) }
    }

    /// Whether the default pool is covered.
    pub fn covers_default(&self) -> bool {
        self.default
    }
}

impl<D: Device> Allocator<D> {
    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&mut self, history: &mut impl Recorder) {
        self.release_cached(&Scope::everything(), history);
    }

    /// Says in which order a flush goes through the private pools; those not named follow, ascending.
    /// In PyTorch the order is unspecified.
    pub fn order_pools(&mut self, first: Vec<PoolIndex>) {
        self.release_order = first;
    }

    /// Returns every wholly free segment in scope to the device (§5.6).
    pub fn release_cached(&mut self, scope: &Scope, history: &mut impl Recorder) {
        // Under routing the default pool is left alone: waiting for streams is not allowed there.
        if scope.default && !self.is_routing() {
            self.stats.num_sync_all_streams += 1;
            self.synchronise(history);
            self.release_half(PoolIndex::DEFAULT.half(false), history);
            self.release_half(PoolIndex::DEFAULT.half(true), history);
        }
        let all = || {
            let rest = (1..self.pools.len()).map(|i| PoolIndex(super::index(i)));
            let rest = rest.filter(|p| !self.release_order.contains(p));
            self.release_order.iter().copied().chain(rest).collect()
        };
        let private: Vec<PoolIndex> = scope.private.clone().unwrap_or_else(all);
        for pool in private {
            if self.pools[pool.0 as usize].users > 0 {
                continue;
            }
            if !scope.default {
                self.stats.num_sync_all_streams += 1;
                self.synchronise_pool(pool, history);
            }
            self.release_half(pool.half(true), history);
            self.release_half(pool.half(false), history);
            self.note_lost_pool(pool);
        }
    }

    /// Waits for the events of one pool's blocks only; deferred frees of every pool get theirs (§5.5).
    fn synchronise_pool(&mut self, pool: PoolIndex, history: &mut impl Recorder) {
        if !self.is_routing() {
            self.settle_deferred(history);
        }
        let of_pool = |blocks: &crate::block::Blocks, id: u32| blocks[id].half / 2 == pool.0;
        for stream in 0..self.events.len() {
            let queue = std::mem::take(&mut self.events[stream]);
            let (mine, rest) = queue.into_iter().partition(|&(_, id)| of_pool(&self.blocks, id));
            self.events[stream] = rest;
            for (_, id) in mine {
                self.finish_event(id, history);
            }
        }
        let told = std::mem::take(&mut self.told);
        let (mine, rest): (Vec<_>, _) = told.into_iter().partition(|id| of_pool(&self.blocks, *id));
        self.told = rest;
        for id in mine {
            self.finish_event(id, history);
        }
    }

    /// PyTorch drops a private pool's record when nobody uses it and its segment count is 0; with
    /// expandable segments that can happen while it still holds memory (§6.7).
    fn note_lost_pool(&mut self, pool: PoolIndex) {
        if pool == PoolIndex::DEFAULT || self.pools[pool.0 as usize].segments > 0 {
            return;
        }
        let holds = |b: &Block| b.half / 2 == pool.0 && b.has(crate::block::MAPPED);
        if self.blocks.iter().any(|(_, b)| holds(b)) {
            self.lost_pools += 1;
        }
    }

    fn release_half(&mut self, half: u32, history: &mut impl Recorder) {
        let all = self.walk(half).map(|e| e.block);
        let (expandable, ordinary): (Vec<u32>, Vec<u32>) =
            all.partition(|id| self.is_expandable(*id));
        for id in ordinary {
            if !self.blocks[id].is_split() {
                self.release_block(id, history);
            }
        }
        for id in expandable {
            self.unmap_block(id, history);
        }
    }

    /// Returns one whole segment.
    fn release_block(&mut self, id: u32, history: &mut impl Recorder) {
        self.remove_free(id);
        self.record(history, Action::SegmentFree, &self.blocks[id]);
        let Block { addr, size, half, .. } = self.blocks[id];
        self.device.free(addr, size);
        self.stats.num_device_free += 1;
        self.reserved -= size;
        self.pools[(half / 2) as usize].segments -= 1;
        let small = half.is_multiple_of(2);
        self.stats.change(Family::Segment, small, -1);
        self.stats.change(Family::ReservedBytes, small, -signed(size));
        if size >= self.config.max_split_size {
            self.stats.oversize_segments.change(-1);
        }
        self.blocks.drop(id);
    }

    /// §4.4: frees oversize blocks of the request's pool so that it may fit; true if enough went.
    pub(super) fn release_available(
        &mut self,
        request: &Request,
        history: &mut impl Recorder,
    ) -> bool {
        let max = self.config.max_split_size;
        if max == u64::MAX {
            return false;
        }
        let need = request.size.max(max);
        // Such blocks are whole unless `max_split_size` changed at run time; a split one cannot go back.
        let returnable = |b: &Block| !b.has(EXPANDABLE) && !b.is_split();
        let set = self.half(request.half).free_of(request.stream);
        if let Some(found) = set.at_least(need).map(|at| set.get(at).block)
            && returnable(&self.blocks[found])
        {
            self.release_block(found, history);
            return true;
        }
        let mut released = 0;
        let mut below = need;
        let mut order_below = None;
        while released < need {
            let set = self.half_ref(request.half).free.get(request.stream as usize);
            let Some(entry) = set.and_then(|s| s.before(below, order_below)) else { break };
            if entry.size < max {
                break;
            }
            (below, order_below) = (entry.size, Some(entry.order));
            if returnable(&self.blocks[entry.block]) {
                released += entry.size;
                self.release_block(entry.block, history);
            }
        }
        released >= need
    }

    /// Bytes above which garbage collection starts (§4.2).
    pub(super) fn garbage_limit(&self) -> u64 {
        let limit = self.limit.unwrap_or(u64::MAX);
        // PyTorch multiplies in double precision and truncates.
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let bytes = (self.config.garbage_collection_threshold * limit as f64) as u64;
        bytes
    }

    /// §4.2: frees unsplit blocks of the default large pool that went unused longest.
    pub(super) fn collect_garbage(&mut self, history: &mut impl Recorder) {
        let limit = self.garbage_limit();
        if self.reserved <= limit {
            return;
        }
        let target = self.reserved - limit;
        let half = PoolIndex::DEFAULT.half(false);
        let lookups = self.half_ref(half).lookups;
        let unsplit: Vec<(u32, u64)> = self
            .walk(half)
            .map(|e| e.block)
            .filter(|id| !self.blocks[*id].is_split())
            .map(|id| (id, lookups - self.blocks[id].stamp))
            .collect();
        let mut total_age: u64 = unsplit.iter().map(|(_, age)| age).sum();
        let mut count = unsplit.len() as u64;
        let mut left: Vec<(u32, u64)> =
            unsplit.into_iter().filter(|(id, _)| !self.blocks[*id].has(EXPANDABLE)).collect();
        let (mut reclaimed, mut progress) = (0, true);
        while reclaimed < target && progress && count > 0 {
            progress = false;
            #[allow(clippy::cast_precision_loss)] // as PyTorch computes it
            let threshold = total_age as f64 / count as f64;
            let mut kept = Vec::with_capacity(left.len());
            for (id, age) in left {
                #[allow(clippy::cast_precision_loss)]
                if (age as f64) < threshold {
                    kept.push((id, age));
                    continue;
                }
                reclaimed += self.blocks[id].size;
                total_age -= age;
                count -= 1;
                progress = true;
                self.release_block(id, history);
            }
            left = kept;
        }
    }
}

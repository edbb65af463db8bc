//! §4.2, §4.4, §5.6: what goes back to the device.

use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_types::Action;

use super::{Reference, Request, signed};

impl<D: Device> Reference<D> {
    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&mut self) {
        self.release_cached(None);
    }

    /// The end of a `MemPool` object.
    pub fn destroy_pool(&mut self, pool: usize) {
        self.release_pool(pool);
        self.release_cached(Some(pool));
    }

    /// §5.6; `None` is the default scope.
    pub(super) fn release_cached(&mut self, only: Option<usize>) {
        if only.is_none() && !self.is_routing() {
            self.counters.num_sync_all_streams += 1;
            self.synchronise(None);
            self.release_half(0, false);
            self.release_half(0, true);
        }
        if only.is_none() && self.is_routing() {
            self.took("default pool kept under routing");
        }
        for pool in 1..self.pools.len() {
            if self.pools[pool].users > 0 || only.is_some_and(|o| o != pool) {
                continue;
            }
            if only.is_some() {
                self.counters.num_sync_all_streams += 1;
                self.synchronise(only);
            }
            self.release_half(pool, true);
            self.release_half(pool, false);
            // Now PyTorch would delete the record of a pool whose segment count is 0 (§6.7).
            let holds =
                self.segments.iter().any(|s| s.pool == pool && s.blocks.iter().any(|b| b.mapped));
            if self.pools[pool].segments <= 0 && holds {
                self.took("pool lost while it holds memory");
                self.lost += 1;
            }
        }
    }

    fn release_half(&mut self, pool: usize, small: bool) {
        let list = self.free_list(pool, small);
        let (expandable, ordinary): (Vec<_>, Vec<_>) =
            list.into_iter().partition(|(_, _, addr)| self.segment(*addr).granule.is_some());
        for (_, _, addr) in ordinary {
            if !self.has_neighbour(addr) {
                self.release_block(addr);
            }
        }
        for (_, _, addr) in expandable {
            self.unmap(addr);
        }
    }

    /// §5.6 `release_block`.
    fn release_block(&mut self, addr: u64) {
        let (s, _) = self.find(addr);
        let segment = self.segments.remove(s);
        let (size, small) = (segment.size, segment.small);
        self.counters.num_device_free += 1;
        self.emit(Action::SegmentFree, segment.base, size, segment.stream);
        self.device.free(segment.base, size);
        self.reserved -= size;
        self.pools[segment.pool].segments -= 1;
        self.counters.add(Family::Segment, small, -1);
        self.counters.add(Family::ReservedBytes, small, -signed(size));
        if size >= self.config.max_split_size {
            self.counters.oversize_segments.add(-1);
        }
    }

    /// §4.4. The rule assumes whole blocks; a split one, possible only after `max_split_size` changed
    /// at run time, cannot go back and is passed over like an expandable one.
    pub(super) fn release_available(&mut self, request: &Request) -> bool {
        let m = self.config.max_split_size;
        if m == u64::MAX {
            return false;
        }
        let need = request.size.max(m);
        let stream = self.handles[request.stream as usize];
        let list = self.free_list(request.pool, request.small);
        let stays = |r: &Self, addr| r.segment(addr).granule.is_some() || r.has_neighbour(addr);
        // 1. and 2.
        let position = list
            .iter()
            .position(|(s, size, _)| (*s, *size) >= (stream, need))
            .unwrap_or(list.len());
        if let Some((s, _, addr)) = list.get(position)
            && *s == stream
        {
            if !stays(self, *addr) {
                self.took("released one oversize block");
                self.release_block(*addr);
                return true;
            }
            self.took("an oversize block cannot be released");
        }
        // 3.
        let mut released = 0;
        for (s, size, addr) in list[..position].iter().rev() {
            if released >= need || *size < m || *s != stream {
                break;
            }
            if !stays(self, *addr) {
                released += size;
                self.release_block(*addr);
            }
        }
        if released > 0 && released < need {
            self.took("released oversize blocks, but too little");
        }
        released >= need
    }

    /// §4.2.
    pub(super) fn collect_garbage(&mut self, allowed: u64) {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let limit = (self.config.garbage_collection_threshold * allowed as f64).trunc() as u64;
        if self.reserved <= limit {
            return;
        }
        let target = self.reserved - limit;
        let counter = self.pools[0].lookups[0];
        let unsplit = |r: &Self| {
            let mut blocks = Vec::new();
            for (_, size, addr) in r.free_list(0, false) {
                if !r.has_neighbour(addr) {
                    blocks.push((addr, size, counter - r.block(addr).stamp));
                }
            }
            blocks
        };
        let mut n = unsplit(self).len();
        let mut total_age: u64 = unsplit(self).iter().map(|(_, _, age)| age).sum();
        let (mut reclaimed, mut passes) = (0, 0);
        loop {
            let before = reclaimed;
            if reclaimed >= target || n == 0 {
                break;
            }
            #[allow(clippy::cast_precision_loss)]
            let threshold = total_age as f64 / n as f64;
            for (addr, size, age) in unsplit(self) {
                let ordinary = self.segment(addr).granule.is_none();
                #[allow(clippy::cast_precision_loss)]
                if ordinary && age as f64 >= threshold {
                    self.release_block(addr);
                    reclaimed += size;
                    total_age -= age;
                    n -= 1;
                }
            }
            if reclaimed == before {
                break;
            }
            passes += 1;
        }
        match passes {
            0 => self.took("garbage collection found nothing"),
            1 => self.took("garbage collection in one pass"),
            _ => self.took("garbage collection in several passes"),
        }
    }
}

//! `malloc`, step by step (specification §2, §3.1, §4).

use vramwise_types::Action;

use super::{Allocator, Scope, StreamIndex, ThreadId, signed};
use crate::block::{ALLOCATED, Block, BlockId, EXPANDABLE, FREE, MAPPED, NONE};
use crate::device::Device;
use crate::free_set::Cursor;
use crate::history::{Entry, Recorder};
use crate::pool::PoolIndex;
use crate::size;
use crate::stats::Family;
use crate::ties::TieRule;

/// Why no memory was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MallocError {
    /// `OutOfMemoryError`: neither cache nor device had room.
    #[error("out of memory: {requested} bytes were requested, {segment} bytes asked of the device")]
    OutOfMemory {
        /// The request in bytes.
        requested: u64,
        /// The size asked of the device in bytes, as in "Tried to allocate".
        segment: u64,
    },
    /// The request is 1 EiB or more; nothing was tried.
    #[error("{0} bytes are more than 1 EiB")]
    TooLarge(u64),
}

/// One request on its way through the steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) requested: u64,
    /// Rounded size.
    pub(super) size: u64,
    /// Size asked of the device.
    pub(super) segment: u64,
    pub(super) stream: u32,
    pub(super) half: u32,
    /// Whether the request may use expandable segments (§6.1).
    pub(super) expandable: bool,
}

impl Request {
    pub(super) fn pool(&self) -> PoolIndex {
        PoolIndex(self.half / 2)
    }

    pub(super) fn small(&self) -> bool {
        self.half.is_multiple_of(2)
    }
}

impl<D: Device> Allocator<D> {
    /// Allocates `requested` bytes for `stream` from the pool that routing selects for the thread.
    ///
    /// # Errors
    /// [`MallocError`] as PyTorch would raise it. 0 bytes yield [`BlockId::NULL`].
    pub fn malloc(
        &mut self,
        requested: u64,
        stream: StreamIndex,
        thread: ThreadId,
        history: &mut impl Recorder,
    ) -> Result<BlockId, MallocError> {
        let pool = self.route_of(stream, thread);
        self.malloc_from(pool, requested, stream, self.is_routing(), history)
    }

    /// Allocates from a given pool; `routing` says whether a capture or pool routing is under way on
    /// the device, which suspends event queries and cache flushes (§4, §5.7).
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc_from(
        &mut self,
        pool: PoolIndex,
        requested: u64,
        stream: StreamIndex,
        routing: bool,
        history: &mut impl Recorder,
    ) -> Result<BlockId, MallocError> {
        if requested == 0 {
            return Ok(BlockId::NULL);
        }
        if requested >= size::TOO_LARGE {
            return Err(MallocError::TooLarge(requested));
        }
        if !routing {
            self.process_events(history);
        }
        let mut request = self.request(pool, requested, stream);
        let found = match self.find_free(&request) {
            Some(id) => Some(id),
            None => self.malloc_miss(&mut request, routing, history),
        };
        match found {
            Some(id) => Ok(self.hand_out(id, &request, history)),
            None => {
                self.stats.num_ooms += 1;
                let Request { size, segment, stream, .. } = request;
                let free = self.device.free_bytes();
                history.record(Entry { action: Action::Oom, addr: free, size, stream });
                Err(MallocError::OutOfMemory { requested, segment })
            }
        }
    }

    pub(super) fn request(&self, pool: PoolIndex, requested: u64, stream: StreamIndex) -> Request {
        let size = size::round_size(&self.config, requested);
        let own = self.pools[pool.0 as usize].options.own_allocator;
        Request {
            requested,
            size,
            segment: size::segment_size(&self.config, size),
            stream: stream.0,
            half: pool.half(size::is_small(size)),
            expandable: self.config.expandable_segments && !own,
        }
    }

    /// Step 5: no cached block serves the request.
    fn malloc_miss(
        &mut self,
        request: &mut Request,
        routing: bool,
        history: &mut impl Recorder,
    ) -> Option<u32> {
        if self.collects_garbage() {
            self.collect_garbage(history);
        }
        if let Some(id) = self.alloc_block(request, history) {
            return Some(id);
        }
        // Before 2.11 pools with use_on_oom were the last resort, after all releases (§14).
        let early = self.version.at_least_2(11);
        if early && let Some(id) = self.overflow(request) {
            return Some(id);
        }
        if self.release_available(request, history)
            && let Some(id) = self.alloc_block(request, history)
        {
            return Some(id);
        }
        if !routing {
            self.release_cached(&Scope::everything(), history);
            self.stats.num_alloc_retries += 1;
            if let Some(id) = self.alloc_block(request, history) {
                return Some(id);
            }
        }
        if early { None } else { self.overflow(request) }
    }

    /// Whether garbage collection can do anything: it needs a limit below the card (§4.2).
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    /// §2.2: takes the best fitting free block out of its set.
    fn find_free(&mut self, request: &Request) -> Option<u32> {
        if self.collects_garbage() {
            self.half(request.half).lookups += 1;
        }
        let (at, id) = self.peek_free(request)?;
        let by_address = self.tie_rule == TieRule::Address;
        let set = self.half(request.half).free_of(request.stream);
        let tie = set.next(at).is_some_and(|n| set.get(n).size == set.get(at).size);
        set.remove_at(at);
        self.ties += u64::from(tie && by_address);
        self.blocks[id].flags &= !FREE;
        Some(id)
    }

    /// §2.2 without any change.
    pub(super) fn peek_free(&self, request: &Request) -> Option<(Cursor, u32)> {
        let set = self.half_ref(request.half).free.get(request.stream as usize)?;
        let mut at = set.at_least(request.size)?;
        let mut found = set.get(at);
        if self.is_expandable(found.block) {
            if request.expandable {
                while self.is_expandable(found.block)
                    && let Some(next) = set.next(at)
                    && self.reach(set.get(next).block) < self.reach(found.block)
                {
                    at = next;
                    found = set.get(at);
                }
            } else {
                while self.is_expandable(found.block) {
                    at = set.next(at)?;
                    found = set.get(at);
                }
            }
        }
        let max = self.config.max_split_size;
        if request.size < max && found.size >= max {
            return None;
        }
        let room = request.size.saturating_add(self.config.max_non_split_rounding);
        if request.size >= max && found.size >= room {
            return None;
        }
        Some((at, found.block))
    }

    /// Bytes up to which a block could grow in place (§2.2 step 3).
    fn reach(&self, id: u32) -> u64 {
        let block = &self.blocks[id];
        let next = block.next;
        if next != NONE && !self.blocks[next].has(MAPPED) {
            block.size + self.blocks[next].size
        } else {
            block.size
        }
    }

    /// §4 step 5.3: a free block of a pool that may be used when the device is full.
    fn overflow(&mut self, request: &mut Request) -> Option<u32> {
        if request.pool() != PoolIndex::DEFAULT {
            return None;
        }
        let small = request.small();
        for pool in 1..self.pools.len() {
            if !self.pools[pool].options.use_on_oom {
                continue;
            }
            let half = PoolIndex(super::index(pool)).half(small);
            let mut routed = Request { half, expandable: false, ..*request };
            std::mem::swap(request, &mut routed);
            if let Some(id) = self.find_free(request) {
                return Some(id);
            }
            *request = routed;
        }
        None
    }

    /// §4.3: asks the device.
    fn alloc_block(&mut self, request: &Request, history: &mut impl Recorder) -> Option<u32> {
        let seg = request.segment;
        // A sum beyond 64 bits, which only an absurd recording can want, is out of memory.
        let reserved = self.reserved.checked_add(seg)?;
        if self.limit.is_some_and(|limit| reserved > limit) {
            return None;
        }
        let pool = request.pool().0 as usize;
        if request.expandable {
            let id = self.alloc_expandable(request, history)?;
            self.pools[pool].segments += 1;
            return Some(id);
        }
        let addr = self.device.malloc(seg)?;
        self.pools[pool].segments += 1;
        self.reserved = reserved;
        let small = request.small();
        self.stats.change(Family::Segment, small, 1);
        self.stats.change(Family::ReservedBytes, small, signed(seg));
        if seg >= self.config.max_split_size {
            self.stats.oversize_segments.change(1);
        }
        self.stats.num_device_alloc += 1;
        let stream = request.stream;
        history.record(Entry { action: Action::SegmentAlloc, addr, size: seg, stream });
        let rank = self.next_rank(addr);
        Some(self.blocks.add(Block {
            addr,
            rank,
            size: seg,
            requested: 0,
            stamp: 0,
            prev: NONE,
            next: NONE,
            half: request.half,
            stream,
            reservation: NONE,
            events: 0,
            uses: 0,
            flags: MAPPED,
        }))
    }

    /// Step 6: splits, marks, counts.
    #[inline]
    fn hand_out(&mut self, id: u32, request: &Request, history: &mut impl Recorder) -> BlockId {
        let block = &self.blocks[id];
        let was_split = block.is_split();
        let rest = block.size - request.size;
        let (ordinary, whole) = (!block.has(EXPANDABLE), block.size);
        let small = request.small();
        let id = if self.should_split(request, rest) {
            let front = self.split_front(id, request.size);
            self.insert_free(id);
            if ordinary && was_split {
                self.stats.change(Family::InactiveSplitBytes, small, -signed(request.size));
            } else if ordinary {
                self.stats.change(Family::InactiveSplit, small, 1);
                self.stats.change(Family::InactiveSplitBytes, small, signed(rest));
            }
            front
        } else {
            if ordinary && was_split {
                self.stats.change(Family::InactiveSplit, small, -1);
                self.stats.change(Family::InactiveSplitBytes, small, -signed(whole));
            }
            id
        };
        let block = &mut self.blocks[id];
        block.flags = (block.flags | ALLOCATED) & !FREE;
        block.requested = request.requested;
        let size = signed(block.size);
        history.record(Entry {
            action: Action::Alloc,
            addr: block.addr,
            size: block.requested,
            stream: block.stream,
        });
        let stats = &mut self.stats;
        stats.change(Family::Allocation, small, 1);
        stats.change(Family::AllocatedBytes, small, size);
        stats.change(Family::Active, small, 1);
        stats.change(Family::ActiveBytes, small, size);
        stats.change(Family::RequestedBytes, small, signed(request.requested));
        if block.size >= self.config.max_split_size {
            stats.oversize_allocations.change(1);
        }
        BlockId(id)
    }

    /// §3.1.
    fn should_split(&self, request: &Request, rest: u64) -> bool {
        if self.pools[request.pool().0 as usize].options.no_split {
            false
        } else if request.small() || request.expandable {
            rest >= size::MIN_BLOCK
        } else {
            request.size < self.config.max_split_size && rest > size::SMALL_MAX
        }
    }

    /// Whether a malloc now could return memory to the device first: its lookup misses, and garbage
    /// collection or the limit comes into play. Changes nothing (specification §16.2 rule 3).
    pub fn could_release(&self, pool: PoolIndex, requested: u64, stream: StreamIndex) -> bool {
        if requested == 0 || requested >= size::TOO_LARGE {
            return false;
        }
        let request = self.request(pool, requested, stream);
        let over_limit = |limit| self.reserved.saturating_add(request.segment) > limit;
        self.peek_free(&request).is_none()
            && ((self.collects_garbage() && self.reserved > self.garbage_limit())
                || self.limit.is_some_and(over_limit))
    }

    /// Bytes that the device would be asked for now, if no cached block serves the request; `None`
    /// where one does.
    pub fn miss_size(&self, pool: PoolIndex, requested: u64, stream: StreamIndex) -> Option<u64> {
        if requested == 0 || requested >= size::TOO_LARGE {
            return None;
        }
        let request = self.request(pool, requested, stream);
        self.peek_free(&request).is_none().then_some(request.segment)
    }
}

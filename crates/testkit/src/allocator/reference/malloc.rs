//! §2 and §4: lookup and `malloc`, step by step.

use vramwise_model::MallocError;
use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_types::Action;

use super::sizes::{round_size, segment_size};
use super::{Block, Reference, Request, Segment, signed};

impl<D: Device> Reference<D> {
    /// §4. The address, 0 for a request of 0 bytes.
    ///
    /// # Errors
    /// As PyTorch would raise it.
    pub fn malloc(&mut self, requested: u64, stream: u32, thread: u32) -> Result<u64, MallocError> {
        if requested == 0 {
            return Ok(0);
        }
        if requested >= 1 << 60 {
            return Err(MallocError::TooLarge(requested));
        }
        // 2.
        if !self.is_routing() {
            self.process_events();
        }
        // 3.
        let size = round_size(&self.config, requested);
        let pool = self.route(stream, thread);
        let mut request = Request {
            requested,
            size,
            seg: segment_size(&self.config, size),
            stream,
            pool,
            small: size <= 1 << 20,
            expandable: self.config.expandable_segments && !self.pools[pool].options.own_allocator,
        };
        // 4. and 5.
        let found = match self.find_free(&request) {
            Some(addr) => Some(addr),
            None => self.miss(&mut request),
        };
        let Some(addr) = found else {
            self.took("out of memory");
            self.counters.num_ooms += 1;
            let free = self.device.free_bytes();
            self.emit(Action::Oom, free, size, stream);
            return Err(MallocError::OutOfMemory { requested, segment: request.seg });
        };
        // 6.
        self.hand_out(addr, &request);
        Ok(addr)
    }

    /// §4 step 5.
    fn miss(&mut self, request: &mut Request) -> Option<u64> {
        // 5.1
        if let Some(allowed) = self.limit
            && self.config.garbage_collection_threshold > 0.0
        {
            self.collect_garbage(allowed);
        }
        // 5.2
        if let Some(addr) = self.alloc_block(request, false) {
            return Some(addr);
        }
        // 5.3; before 2.11 the very last resort
        let pool_first = (self.version.major, self.version.minor) >= (2, 11);
        if pool_first && let Some(addr) = self.overflow(request) {
            return Some(addr);
        }
        // 5.4
        if self.release_available(request) {
            self.took("released enough oversize blocks");
            if let Some(addr) = self.alloc_block(request, false) {
                return Some(addr);
            }
        }
        // 5.5
        if !self.is_routing() {
            self.release_cached(None);
            if let Some(addr) = self.alloc_block(request, true) {
                self.took("retry granted");
                return Some(addr);
            }
        }
        if pool_first { None } else { self.overflow(request) }
    }

    /// §4 step 5.3.
    fn overflow(&mut self, request: &mut Request) -> Option<u64> {
        if request.pool != 0 {
            return None;
        }
        for pool in 1..self.pools.len() {
            if self.pools[pool].options.use_on_oom {
                let there = Request { pool, expandable: false, ..*request };
                if let Some(addr) = self.find_free(&there) {
                    self.took("served by an overflow pool");
                    *request = there;
                    return Some(addr);
                }
            }
        }
        None
    }

    /// §2.2. The address of the chosen block; it stays where it is.
    fn find_free(&mut self, request: &Request) -> Option<u64> {
        let &Request { pool, small, size, .. } = request;
        // 1.
        if self.limit.is_some() && self.config.garbage_collection_threshold > 0.0 {
            self.pools[pool].lookups[usize::from(small)] += 1;
        }
        // 2.
        let stream = self.handles[request.stream as usize];
        let list = self.free_list(pool, small);
        let on_stream = |i: usize| list.get(i).filter(|(s, ..)| *s == stream).copied();
        let mut i = list.iter().position(|(s, bytes, _)| (*s, *bytes) >= (stream, size))?;
        let mut b = on_stream(i)?;
        // 3.
        let expandable = |addr| self.segment(addr).granule.is_some();
        let reach = |addr| {
            let next = self.next(addr).filter(|n| !n.mapped).map_or(0, |n| n.size);
            self.block(addr).size + next
        };
        let mut walked = None;
        if expandable(b.2) {
            if request.expandable {
                while expandable(b.2)
                    && let Some(n) = on_stream(i + 1)
                    && reach(n.2) < reach(b.2)
                {
                    (i, b) = (i + 1, n);
                    walked = Some("lookup preferred a block with less reach");
                }
            } else {
                loop {
                    walked = Some("lookup skipped an expandable block");
                    (i, b) = (i + 1, on_stream(i + 1)?);
                    if !expandable(b.2) {
                        break;
                    }
                }
            }
        }
        if let Some(branch) = walked {
            self.took(branch);
        }
        // 4.
        let m = self.config.max_split_size;
        if size < m && b.1 >= m {
            self.took("lookup refused an oversize block");
            return None;
        }
        // 5.
        if size >= m && b.1 >= size + self.config.max_non_split_rounding {
            self.took("lookup refused too much rounding");
            return None;
        }
        if size >= m {
            self.took("oversize request served from the cache");
        }
        Some(b.2)
    }

    /// §4.3.
    fn alloc_block(&mut self, request: &Request, retry: bool) -> Option<u64> {
        if retry {
            self.counters.num_alloc_retries += 1;
        }
        if let Some(allowed) = self.limit
            && self.reserved + request.seg > allowed
        {
            self.took("refused by the limit");
            return None;
        }
        if request.expandable {
            let addr = self.alloc_expandable(request)?;
            self.pools[request.pool].segments += 1;
            return Some(addr);
        }
        let Request { seg, small, stream, pool, .. } = *request;
        let Some(addr) = self.device.malloc(seg) else {
            self.took("refused by the device");
            return None;
        };
        let (number, of_block) = (self.new_number(), self.new_number());
        self.segments.push(Segment {
            number,
            base: addr,
            size: seg,
            pool,
            small,
            stream,
            granule: None,
            blocks: vec![Block {
                number: of_block,
                addr,
                size: seg,
                requested: 0,
                allocated: false,
                mapped: true,
                events: 0,
                uses: Vec::new(),
                stamp: 0,
            }],
        });
        self.pools[pool].segments += 1;
        self.reserved += seg;
        self.counters.add(Family::Segment, small, 1);
        self.counters.add(Family::ReservedBytes, small, signed(seg));
        if seg >= self.config.max_split_size {
            self.counters.oversize_segments.add(1);
        }
        self.counters.num_device_alloc += 1;
        self.emit(Action::SegmentAlloc, addr, seg, stream);
        Some(addr)
    }

    /// §3.1.
    fn should_split(&mut self, request: &Request, rest: u64) -> bool {
        if self.pools[request.pool].options.no_split {
            self.took("not split in a no-split pool");
            return false;
        }
        if request.small || request.expandable {
            return rest >= 512;
        }
        if request.size < self.config.max_split_size && rest == 1 << 20 {
            self.took("not split because exactly 1 MiB would remain");
        }
        request.size < self.config.max_split_size && rest > 1 << 20
    }

    /// §4 step 6, §3.2, §7.3.
    fn hand_out(&mut self, addr: u64, request: &Request) {
        let &Request { size, requested, small, .. } = request;
        let was_split = self.has_neighbour(addr);
        let whole = self.block(addr).size;
        let ordinary = self.segment(addr).granule.is_none();
        let rest = whole - size;
        if self.should_split(request, rest) {
            let number = self.new_number();
            let (s, b) = self.find(addr);
            let remainder = &mut self.segments[s].blocks[b];
            remainder.addr += size;
            remainder.size = rest;
            let front = Block { number, addr, size, uses: Vec::new(), ..remainder.clone() };
            self.segments[s].blocks.insert(b, front);
            self.stamp(addr + size);
            if ordinary && was_split {
                self.took("split of a split block");
                self.counters.add(Family::InactiveSplitBytes, small, -signed(size));
            } else if ordinary {
                self.counters.add(Family::InactiveSplit, small, 1);
                self.counters.add(Family::InactiveSplitBytes, small, signed(rest));
            }
        } else if ordinary && was_split {
            self.took("split block handed out whole");
            self.counters.add(Family::InactiveSplit, small, -1);
            self.counters.add(Family::InactiveSplitBytes, small, -signed(whole));
        }
        let block = self.block_mut(addr);
        block.allocated = true;
        block.requested = requested;
        let bytes = block.size;
        self.emit(Action::Alloc, addr, requested, request.stream);
        self.counters.add(Family::Allocation, small, 1);
        self.counters.add(Family::AllocatedBytes, small, signed(bytes));
        self.counters.add(Family::Active, small, 1);
        self.counters.add(Family::ActiveBytes, small, signed(bytes));
        self.counters.add(Family::RequestedBytes, small, signed(requested));
        if bytes >= self.config.max_split_size {
            self.counters.oversize_allocations.add(1);
        }
    }
}

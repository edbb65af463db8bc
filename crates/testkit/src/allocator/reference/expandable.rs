//! §6: expandable segments.

use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_types::Action;

use super::{Block, Reference, Request, Segment, signed};

impl<D: Device> Reference<D> {
    /// §6.3. The address of a free block with enough bytes.
    pub(super) fn alloc_expandable(&mut self, request: &Request) -> Option<u64> {
        let size = request.size;
        let mut start = match self.find_room(request) {
            Some(start) => start,
            None => self.reserve(request)?,
        };
        if self.block(start).mapped && self.block(start).size >= size {
            self.took("expandable block used without mapping");
        }
        if !self.block(start).mapped {
            let want = self.block(start).size.min(size);
            start = self.map(start, want)?;
        }
        let mut maps = 0;
        while self.block(start).size < size {
            let missing = size - self.block(start).size;
            let next = self.next(start)?;
            let (addr, want) = (next.addr, missing.min(next.size));
            start = self.map(addr, want)?;
            maps += 1;
        }
        match maps {
            0 => {}
            1 => self.took("free block grown"),
            _ => self.took("grown over several holes"),
        }
        Some(start)
    }

    fn find_room(&self, request: &Request) -> Option<u64> {
        let mut unmapped = Vec::new();
        for segment in &self.segments {
            let same = segment.pool == request.pool && segment.small == request.small;
            if same && segment.stream == request.stream {
                unmapped.extend(segment.blocks.iter().filter(|b| !b.mapped).map(|b| b.addr));
            }
        }
        unmapped.sort_unstable();
        for u in unmapped {
            let (s, b) = self.find(u);
            let blocks = &self.segments[s].blocks;
            let first = if b > 0 && blocks[b - 1].is_free() { b - 1 } else { b };
            let chain = blocks[first..].iter().take_while(|b| b.is_free());
            if chain.map(|b| b.size).sum::<u64>() >= request.size {
                return Some(blocks[first].addr);
            }
        }
        None
    }

    /// §6.2: one unmapped block over 9/8 of the card.
    fn reserve(&mut self, request: &Request) -> Option<u64> {
        let granule = if request.small { 2 << 20 } else { self.config.large_segment_size };
        let total = self.device.total_bytes();
        let size = (total + total / 8).div_ceil(granule) * granule;
        let base = self.device.reserve(size)?;
        let (number, of_block) = (self.new_number(), self.new_number());
        self.segments.push(Segment {
            number,
            base,
            size,
            pool: request.pool,
            small: request.small,
            stream: request.stream,
            granule: Some(granule),
            blocks: vec![unmapped(of_block, base, size)],
        });
        // Mapping all of a reservation that is still too short must fail: it exceeds the card.
        if size < request.size { None } else { Some(base) }
    }

    /// §6.3 `map`: the merged block's address.
    fn map(&mut self, addr: u64, want: u64) -> Option<u64> {
        let (s, b) = self.find(addr);
        let Segment { granule, small, stream, .. } = self.segments[s];
        let g = granule.expect("only expandable segments have unmapped blocks");
        let bytes = want.div_ceil(g) * g;
        if !self.device.map(addr, bytes) {
            self.took("mapping refused by the device");
            return None;
        }
        let block = &mut self.segments[s].blocks[b];
        let rest = block.size - bytes;
        block.size = bytes;
        block.mapped = true;
        if rest > 0 {
            let number = self.new_number();
            self.segments[s].blocks.insert(b + 1, unmapped(number, addr + bytes, rest));
        }
        let (merged, _, _) = self.merge(addr);
        self.stamp(merged);
        self.reserved += bytes;
        self.counters.add(Family::ReservedBytes, small, signed(bytes));
        self.counters.num_device_alloc += 1;
        self.emit(Action::SegmentMap, addr, bytes, stream);
        Some(merged)
    }

    /// §6.5.
    pub(super) fn unmap(&mut self, addr: u64) {
        let (s, b) = self.find(addr);
        let Segment { base, granule, small, stream, pool, size: length, .. } = self.segments[s];
        let g = granule.expect("only expandable blocks are unmapped");
        let old = &self.segments[s].blocks[b];
        let (a, end) = (old.addr - base, old.addr + old.size - base);
        let (from, to) = (a.div_ceil(g) * g, end / g * g);
        if from >= to {
            self.took("no whole granule to unmap");
            return;
        }
        // The interior keeps the object, the leftovers are new ones.
        let (first, second) = (self.new_number(), self.new_number());
        let old = &self.segments[s].blocks[b];
        let mut interior = old.clone();
        (interior.addr, interior.size, interior.mapped) = (base + from, to - from, false);
        let blocks = &mut self.segments[s].blocks;
        blocks[b] = interior;
        let leftover = |number, addr, size| Block { mapped: true, ..unmapped(number, addr, size) };
        let (front, back) = (from - a, end - to);
        if back > 0 {
            blocks.insert(b + 1, leftover(second, base + to, back));
        }
        if front > 0 {
            blocks.insert(b, leftover(first, base + a, front));
        }
        if front > 0 {
            self.stamp(base + a);
        }
        if back > 0 {
            self.stamp(base + to);
        }
        if front > 0 || back > 0 {
            self.took("unmapped with leftovers");
        }
        self.device.unmap(base + from, to - from);
        self.merge(base + from);
        self.reserved -= to - from;
        self.counters.add(Family::ReservedBytes, small, -signed(to - from));
        self.counters.num_device_free += 1;
        self.pools[pool].segments -= 1;
        self.emit(Action::SegmentUnmap, base + from, to - from, stream);
        if self.segments[s].blocks.len() == 1 {
            self.took("reservation dropped");
            self.device.release_reservation(base, length);
            self.segments.remove(s);
        }
    }
}

fn unmapped(number: u64, addr: u64, size: u64) -> Block {
    Block {
        number,
        addr,
        size,
        requested: 0,
        allocated: false,
        mapped: false,
        events: 0,
        uses: Vec::new(),
        stamp: 0,
    }
}

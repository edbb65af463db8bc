//! Expandable segments: growing in place and returning whole granules (specification §6).

use vramwise_types::Action;

use super::{Allocator, Reservation, index, signed};
use crate::block::{Block, EXPANDABLE, FREE, MAPPED, NONE};
use crate::device::Device;
use crate::history::{Entry, Recorder};
use crate::size;
use crate::stats::Family;

use super::malloc::Request;

impl<D: Device> Allocator<D> {
    /// §6.3: finds room, maps what is missing, and takes the block out of its free set.
    pub(super) fn alloc_expandable(
        &mut self,
        request: &Request,
        history: &mut impl Recorder,
    ) -> Option<u32> {
        let mut id = match self.find_room(request) {
            Some(id) => id,
            None => self.new_reservation(request)?,
        };
        if !self.blocks[id].has(MAPPED) {
            let want = self.blocks[id].size.min(request.size);
            self.map_block(id, want, history)?;
        }
        while self.blocks[id].size < request.size {
            let missing = request.size - self.blocks[id].size;
            let next = self.blocks[id].next;
            let want = missing.min(self.blocks[next].size);
            self.map_block(next, want, history)?;
            id = next;
        }
        self.remove_free(id);
        Some(id)
    }

    /// The first place, by address, where free and unmapped blocks in a row suffice.
    fn find_room(&self, request: &Request) -> Option<u32> {
        let unmapped = self.half_ref(request.half).unmapped.get(request.stream as usize)?;
        for &id in unmapped.values() {
            let prev = self.blocks[id].prev;
            let start = if prev != NONE && self.blocks[prev].has(FREE) { prev } else { id };
            let (mut at, mut sum) = (start, 0);
            while at != NONE && self.blocks[at].has(FREE) {
                sum += self.blocks[at].size;
                if sum >= request.size {
                    return Some(start);
                }
                at = self.blocks[at].next;
            }
        }
        None
    }

    /// §6.2: address space of a new reservation, 9/8 of the card in whole granules.
    pub(super) fn reservation_length(&self, granule: u64) -> u64 {
        let total = self.device.total_bytes();
        total.saturating_add(total / 8).min(size::TOO_LARGE).next_multiple_of(granule)
    }

    /// §6.2: address space only, nothing mapped.
    fn new_reservation(&mut self, request: &Request) -> Option<u32> {
        let granule =
            if request.small() { size::SMALL_SEGMENT } else { self.config.large_segment_size };
        let length = self.reservation_length(granule);
        let base = self.device.reserve(length)?;
        self.reservations.push(Reservation { base, size: length, granule, live: true });
        let rank = self.next_rank(base);
        let id = self.blocks.add(Block {
            addr: base,
            rank,
            size: length,
            requested: 0,
            stamp: 0,
            prev: NONE,
            next: NONE,
            half: request.half,
            stream: request.stream,
            reservation: index(self.reservations.len() - 1),
            events: 0,
            uses: 0,
            flags: EXPANDABLE,
        });
        self.insert_unmapped(id);
        // More than the whole reservation cannot be had: the card is full long before.
        (length >= request.size).then_some(id)
    }

    /// Maps at least `want` bytes from the start of an unmapped block, in whole granules.
    fn map_block(&mut self, id: u32, want: u64, history: &mut impl Recorder) -> Option<()> {
        let granule = self.reservations[self.blocks[id].reservation as usize].granule;
        let bytes = want.next_multiple_of(granule).min(self.blocks[id].size);
        let Block { addr, stream, half, .. } = self.blocks[id];
        let reserved = self.reserved.checked_add(bytes)?;
        if !self.device.map(addr, bytes) {
            return None;
        }
        self.remove_unmapped(id);
        if bytes < self.blocks[id].size {
            let block = &mut self.blocks[id];
            let rest = Block {
                addr: addr + bytes,
                size: block.size - bytes,
                requested: 0,
                prev: id,
                ..block.clone()
            };
            block.size = bytes;
            let next = rest.next;
            let rest = self.blocks.add(rest);
            self.blocks[id].next = rest;
            if next != NONE {
                self.blocks[next].prev = rest;
            }
            self.insert_unmapped(rest);
        }
        self.blocks[id].flags |= MAPPED;
        let prev = self.blocks[id].prev;
        self.absorb(id, prev);
        let next = self.blocks[id].next;
        self.absorb(id, next);
        self.insert_free(id);
        self.reserved = reserved;
        self.stats.change(Family::ReservedBytes, half.is_multiple_of(2), signed(bytes));
        self.stats.num_device_alloc += 1;
        history.record(Entry { action: Action::SegmentMap, addr, size: bytes, stream });
        Some(())
    }

    /// §6.5: unmaps the whole granules inside a free block.
    pub(super) fn unmap_block(&mut self, id: u32, history: &mut impl Recorder) {
        let Block { addr, size, reservation, stream, half, .. } = self.blocks[id];
        let Reservation { base, granule, size: length, .. } =
            self.reservations[reservation as usize];
        let start = base + (addr - base).next_multiple_of(granule);
        let end = base + (addr + size - base) / granule * granule;
        if start >= end {
            return;
        }
        self.remove_free(id);
        let (front, back) = (start - addr, addr + size - end);
        if front > 0 {
            let left = self.split_front(id, front);
            self.insert_free(left);
        }
        if back > 0 {
            let block = &mut self.blocks[id];
            block.size -= back;
            let right = Block { addr: end, size: back, requested: 0, prev: id, ..block.clone() };
            let next = right.next;
            let right = self.blocks.add(right);
            self.blocks[id].next = right;
            if next != NONE {
                self.blocks[next].prev = right;
            }
            self.insert_free(right);
        }
        let bytes = end - start;
        self.device.unmap(start, bytes);
        self.blocks[id].flags &= !MAPPED;
        let Block { prev, next, .. } = self.blocks[id];
        self.absorb(id, prev);
        self.absorb(id, next);
        self.insert_unmapped(id);
        self.reserved -= bytes;
        self.stats.change(Family::ReservedBytes, half.is_multiple_of(2), -signed(bytes));
        self.stats.num_device_free += 1;
        self.pools[(half / 2) as usize].segments -= 1;
        history.record(Entry { action: Action::SegmentUnmap, addr: start, size: bytes, stream });
        if !self.blocks[id].is_split() {
            self.remove_unmapped(id);
            self.blocks.drop(id);
            self.device.release_reservation(base, length);
            self.reservations[reservation as usize].live = false;
        }
    }
}

//! Sizes that no program means, as damaged recordings have them.

use vramwise_model::device::{Device, DriverPlacement, Placement, RisingPlacement, SimDevice};
use vramwise_model::settings::Config;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, MallocError, NoHistory, StreamIndex, ThreadId};
use vramwise_types::TorchVersion;

/// A device that holds whatever 64 bits can address, and gives freed addresses out again.
#[derive(Default)]
struct Endless {
    next: u64,
    freed: Vec<(u64, u64)>,
}

impl Device for Endless {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        if let Some(at) = self.freed.iter().position(|(_, s)| *s == size) {
            return Some(self.freed.swap_remove(at).0);
        }
        let addr = self.next;
        self.next = addr.checked_add(size)?;
        Some(addr)
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.freed.push((addr, size));
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        self.malloc(size)
    }

    fn release_reservation(&mut self, addr: u64, size: u64) {
        self.free(addr, size);
    }

    fn map(&mut self, _addr: u64, _size: u64) -> bool {
        true
    }

    fn unmap(&mut self, _addr: u64, _size: u64) {}

    fn free_bytes(&self) -> u64 {
        u64::MAX - self.next
    }

    fn total_bytes(&self) -> u64 {
        1 << 60
    }

    fn record_event(&mut self, _stream: u64) -> u64 {
        0
    }

    fn event_done(&mut self, _event: u64) -> bool {
        true
    }
}

fn churn<D: Device>(device: D, expandable: bool, bytes: u64) -> Allocator<D> {
    let config = Config { expandable_segments: expandable, ..Config::default() };
    let mut allocator = Allocator::new(config, TorchVersion::REFERENCE, device);
    let mut held = Vec::new();
    for round in 0..60 {
        let request = bytes - round * 513;
        match allocator.malloc(request, StreamIndex::DEFAULT, ThreadId(0), &mut NoHistory) {
            Ok(block) => held.push(block),
            Err(MallocError::OutOfMemory { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        if round % 3 == 0
            && let Some(block) = held.pop()
        {
            allocator.free(block, &mut NoHistory);
            allocator.empty_cache(&mut NoHistory);
        }
    }
    allocator
}

#[test]
fn sums_beyond_64_bits_neither_panic_nor_hand_out_memory() {
    for expandable in [false, true] {
        let allocator = churn(Endless::default(), expandable, (1 << 60) - 1);
        assert!(allocator.stats().num_ooms > 0);
        assert!(allocator.stats().all(Family::Allocation).current < 16);
    }
}

#[test]
fn requests_of_tebibytes_keep_every_invariant() {
    fn run(placement: impl Placement, expandable: bool) {
        let allocator = churn(SimDevice::new(1 << 46, placement), expandable, (5 << 40) + 1);
        allocator.check().expect("invariants hold");
        assert!(allocator.stats().num_ooms > 0);
    }
    for expandable in [false, true] {
        run(DriverPlacement::default(), expandable);
        run(RisingPlacement::default(), expandable);
    }
}

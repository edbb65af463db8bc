//! Address orders that no driver uses, to see whether an answer depends on the order.

use super::{Placement, Reservations};

/// Start of the address space for segments.
const BASE: u64 = 0x7000_0000_0000;
/// End of the address space for segments that are placed downwards.
const TOP: u64 = 0x7f00_0000_0000;

/// Each segment above all earlier ones.
#[derive(Clone, Debug)]
pub struct RisingPlacement {
    next: u64,
    reservations: Reservations,
}

impl Default for RisingPlacement {
    fn default() -> Self {
        Self { next: BASE, reservations: Reservations::default() }
    }
}

impl Placement for RisingPlacement {
    fn place(&mut self, size: u64) -> u64 {
        let addr = self.next;
        self.next += size;
        addr
    }

    fn release(&mut self, _addr: u64, _size: u64) {}

    fn reserve(&mut self, size: u64) -> u64 {
        self.reservations.reserve(size)
    }
}

/// Each segment below all earlier ones.
#[derive(Clone, Debug)]
pub struct FallingPlacement {
    next: u64,
    reservations: Reservations,
}

impl Default for FallingPlacement {
    fn default() -> Self {
        Self { next: TOP, reservations: Reservations::default() }
    }
}

impl Placement for FallingPlacement {
    fn place(&mut self, size: u64) -> u64 {
        self.next -= size;
        self.next
    }

    fn release(&mut self, _addr: u64, _size: u64) {}

    fn reserve(&mut self, size: u64) -> u64 {
        self.reservations.reserve(size)
    }
}

/// Segments in a pseudo-random order of addresses: a coin decides between above and below all others.
#[derive(Clone, Debug)]
pub struct ShuffledPlacement {
    rising: RisingPlacement,
    low: u64,
    state: u64,
}

impl ShuffledPlacement {
    /// The order that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Self { rising: RisingPlacement::default(), low: BASE, state: seed }
    }
}

impl Placement for ShuffledPlacement {
    fn place(&mut self, size: u64) -> u64 {
        // splitmix64: a fixed, seeded sequence keeps replays reproducible
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (z ^ (z >> 31)) & 1 == 0 {
            return self.rising.place(size);
        }
        self.low -= size;
        self.low
    }

    fn release(&mut self, _addr: u64, _size: u64) {}

    fn reserve(&mut self, size: u64) -> u64 {
        self.rising.reserve(size)
    }
}

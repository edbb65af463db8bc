//! What the allocator asks of the hardware, and simulated hardware that answers.

mod driver;
mod listed;
mod recorded;
mod simple;

pub use driver::{DriverPlacement, ProcessSpace};
pub use listed::ListedPlacement;
pub use recorded::{DeviceCall, RecordedPlacement};
pub use simple::{FallingPlacement, RisingPlacement, ShuffledPlacement};

/// Calls that the allocator makes below itself. Sizes and addresses are bytes.
///
/// An implementation must never hand out a range that overlaps a live one.
pub trait Device {
    /// `cudaMalloc`; `None` = out of memory.
    fn malloc(&mut self, size: u64) -> Option<u64>;
    /// `cudaFree` of a whole segment.
    fn free(&mut self, addr: u64, size: u64);
    /// Reserves address space for an expandable segment; `None` = no address space.
    fn reserve(&mut self, size: u64) -> Option<u64>;
    /// Drops a reservation.
    fn release_reservation(&mut self, addr: u64, size: u64);
    /// Creates and maps physical memory, all or nothing; `false` = out of memory.
    fn map(&mut self, addr: u64, size: u64) -> bool;
    /// Unmaps and returns physical memory.
    fn unmap(&mut self, addr: u64, size: u64);
    /// Free bytes, as `cudaMemGetInfo` would say.
    fn free_bytes(&self) -> u64;
    /// Total bytes (`totalGlobalMem`); decides how much address space an expandable segment reserves.
    fn total_bytes(&self) -> u64;
    /// Records an event behind the work queued on a stream.
    fn record_event(&mut self, stream: u64) -> u64;
    /// Whether the work before an event is done.
    fn event_done(&mut self, event: u64) -> bool;
}

/// Where a simulated driver puts things.
pub trait Placement {
    /// Address for a segment of `size` bytes (a multiple of 2 MiB).
    fn place(&mut self, size: u64) -> u64;
    /// The segment at `addr` was freed.
    fn release(&mut self, addr: u64, size: u64);
    /// Address for a reservation of `size` bytes.
    fn reserve(&mut self, size: u64) -> u64;
}

/// First reservation of expandable segments as seen on an H200 (specification §17.2).
const FIRST_RESERVATION: u64 = 0x3_0200_0000;
/// Alignment of reservations and of the driver's chunks.
const CHUNK: u64 = 32 << 20;

/// Rising addresses for reservations (§17.2).
#[derive(Clone, Debug)]
struct Reservations {
    next: u64,
}

impl Default for Reservations {
    fn default() -> Self {
        Self { next: FIRST_RESERVATION }
    }
}

impl Reservations {
    fn reserve(&mut self, size: u64) -> u64 {
        let addr = self.next;
        self.next = (addr.saturating_add(size)).next_multiple_of(CHUNK);
        addr
    }
}

/// Memory that is only address space: counts bytes, refuses beyond its capacity, needs no GPU.
#[derive(Clone, Debug)]
pub struct SimDevice<P> {
    placement: P,
    total: u64,
    used: u64,
    next_event: u64,
    done_events: u64,
    instant_events: bool,
}

impl<P: Placement> SimDevice<P> {
    /// A device of `total` bytes whose addresses come from `placement`. Events complete at once.
    pub fn new(total: u64, placement: P) -> Self {
        Self { placement, total, used: 0, next_event: 0, done_events: 0, instant_events: true }
    }

    /// From now on events stay pending until [`SimDevice::complete_events`].
    pub fn hold_events(&mut self) {
        self.instant_events = false;
    }

    /// All events recorded so far are done.
    pub fn complete_events(&mut self) {
        self.done_events = self.next_event;
    }

    /// The address model.
    pub fn placement(&self) -> &P {
        &self.placement
    }

    /// The address model, to be told things.
    pub fn placement_mut(&mut self) -> &mut P {
        &mut self.placement
    }

    fn take(&mut self, size: u64) -> bool {
        let fits = self.used.checked_add(size).is_some_and(|sum| sum <= self.total);
        if fits {
            self.used += size;
        }
        fits
    }
}

impl<P: Placement> Device for SimDevice<P> {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        self.take(size).then(|| self.placement.place(size))
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.used -= size;
        self.placement.release(addr, size);
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        Some(self.placement.reserve(size))
    }

    fn release_reservation(&mut self, _addr: u64, _size: u64) {}

    fn map(&mut self, _addr: u64, size: u64) -> bool {
        self.take(size)
    }

    fn unmap(&mut self, _addr: u64, size: u64) {
        self.used -= size;
    }

    fn free_bytes(&self) -> u64 {
        self.total - self.used
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn record_event(&mut self, _stream: u64) -> u64 {
        self.next_event += 1;
        self.next_event - 1
    }

    fn event_done(&mut self, event: u64) -> bool {
        self.instant_events || event < self.done_events
    }
}

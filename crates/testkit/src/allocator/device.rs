//! A simulated device that finds mistakes of its caller.
//!
//! [`Watched`] wraps any [`Device`], keeps its own book of what is held, and notes the first call that
//! no driver would accept: a free of something that is not held, a map outside a reservation, two
//! ranges that overlap. It also counts the calls, can list them, refuses above a ceiling, and lets a
//! test decide when events pass. [`AnyPlacement`] chooses an address order by value.

use std::collections::BTreeMap;

use vramwise_model::device::{
    Device, DriverPlacement, FallingPlacement, Placement, RisingPlacement, ShuffledPlacement,
    SimDevice,
};

/// One call as the device saw it. Sizes and addresses are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Malloc { size: u64, addr: Option<u64> },
    Free { addr: u64, size: u64 },
    Reserve { size: u64, addr: Option<u64> },
    ReleaseReservation { addr: u64, size: u64 },
    Map { addr: u64, size: u64, done: bool },
    Unmap { addr: u64, size: u64 },
}

/// Numbers of calls and bytes since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counts {
    pub mallocs: u64,
    pub refused_mallocs: u64,
    pub frees: u64,
    pub maps: u64,
    pub refused_maps: u64,
    pub unmaps: u64,
    /// Bytes of successful `malloc` and `map` calls.
    pub bytes_taken: u64,
    /// Bytes of `free` and `unmap` calls.
    pub bytes_returned: u64,
}

/// Ranges of bytes that never overlap, start → end.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, e)| *e > start)
    }

    fn contains(&self, start: u64, end: u64) -> bool {
        self.0.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    }

    fn insert(&mut self, start: u64, end: u64) -> bool {
        let fits = start < end && !self.overlaps(start, end);
        if fits {
            self.0.insert(start, end);
        }
        fits
    }

    /// Takes a range out that was inserted as it is.
    fn remove_exactly(&mut self, start: u64, end: u64) -> bool {
        let found = self.0.get(&start) == Some(&end);
        if found {
            self.0.remove(&start);
        }
        found
    }

    /// Takes a range out that is wholly covered, whatever pieces it was inserted in.
    fn remove_covered(&mut self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let Some((&s, &e)) = self.0.range(..=at).next_back().filter(|(_, e)| **e > at) else {
                return false;
            };
            self.0.remove(&s);
            if s < at {
                self.0.insert(s, at);
            }
            if end < e {
                self.0.insert(end, e);
            }
            at = e.min(end);
        }
        true
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Watched<D> {
    inner: D,
    held: Ranges,
    reserved: Ranges,
    mapped: Ranges,
    counts: Counts,
    calls: Option<Vec<Call>>,
    ceiling: Option<u64>,
    /// Events that have not passed, oldest first, as (stream handle, event).
    waiting: Vec<(u64, u64)>,
    next_event: u64,
    holds_events: bool,
    fault: Option<String>,
}

impl<D: Device> Watched<D> {
    /// Watches `inner`. Events pass at once.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            held: Ranges::default(),
            reserved: Ranges::default(),
            mapped: Ranges::default(),
            counts: Counts::default(),
            calls: None,
            ceiling: None,
            waiting: Vec::new(),
            next_event: 0,
            holds_events: false,
            fault: None,
        }
    }

    /// Keeps a list of the calls from now on.
    #[must_use]
    pub fn listing_calls(mut self) -> Self {
        self.calls = Some(Vec::new());
        self
    }

    /// From now on events wait for [`Watched::pass_events`].
    #[must_use]
    pub fn holding_events(mut self) -> Self {
        self.holds_events = true;
        self
    }

    /// Refuses to hold more than that many bytes, whatever the device itself says is free.
    pub fn set_ceiling(&mut self, bytes: Option<u64>) {
        self.ceiling = bytes;
    }

    /// The oldest `count` waiting events of a stream pass.
    pub fn pass_events(&mut self, stream: u64, count: usize) {
        let mut left = count;
        self.waiting.retain(|(s, _)| {
            let passes = *s == stream && left > 0;
            left -= usize::from(passes);
            !passes
        });
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device inside, to be told things.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// The calls since [`Watched::listing_calls`] or the last look.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes that the caller holds.
    pub fn held_bytes(&self) -> u64 {
        self.counts.bytes_taken - self.counts.bytes_returned
    }

    /// Number of reservations that the caller holds.
    pub fn reservations(&self) -> usize {
        self.reserved.0.len()
    }

    /// The first call that no driver would accept.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn demand(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.fault.is_none() {
            self.fault = Some(what());
        }
    }

    fn note(&mut self, call: Call) {
        if let Some(calls) = &mut self.calls {
            calls.push(call);
        }
    }

    fn allowed(&self, size: u64) -> bool {
        self.ceiling.is_none_or(|c| self.held_bytes().saturating_add(size) <= c)
    }
}

impl<D: Device> Device for Watched<D> {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        let addr = if self.allowed(size) { self.inner.malloc(size) } else { None };
        self.note(Call::Malloc { size, addr });
        let Some(at) = addr else {
            self.counts.refused_mallocs += 1;
            return None;
        };
        self.counts.mallocs += 1;
        self.counts.bytes_taken += size;
        let fresh = self.held.insert(at, at + size) && !self.reserved.overlaps(at, at + size);
        self.demand(fresh, || format!("malloc({size}) handed out {at:#x}, which is taken"));
        addr
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.note(Call::Free { addr, size });
        self.counts.frees += 1;
        self.counts.bytes_returned += size;
        let known = self.held.remove_exactly(addr, addr + size);
        self.demand(known, || format!("free({addr:#x}, {size}) is no whole segment"));
        self.inner.free(addr, size);
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        let addr = self.inner.reserve(size);
        self.note(Call::Reserve { size, addr });
        if let Some(at) = addr {
            let fresh = self.reserved.insert(at, at + size) && !self.held.overlaps(at, at + size);
            self.demand(fresh, || format!("reserve({size}) handed out {at:#x}, which is taken"));
        }
        addr
    }

    fn release_reservation(&mut self, addr: u64, size: u64) {
        self.note(Call::ReleaseReservation { addr, size });
        let known = self.reserved.remove_exactly(addr, addr + size);
        self.demand(known, || format!("release_reservation({addr:#x}, {size}) is unknown"));
        let empty = !self.mapped.overlaps(addr, addr + size);
        self.demand(empty, || format!("reservation {addr:#x} went with memory mapped into it"));
        self.inner.release_reservation(addr, size);
    }

    fn map(&mut self, addr: u64, size: u64) -> bool {
        let done = self.allowed(size) && self.inner.map(addr, size);
        self.note(Call::Map { addr, size, done });
        let inside = self.reserved.contains(addr, addr + size);
        self.demand(inside, || format!("map({addr:#x}, {size}) lies outside all reservations"));
        if !done {
            self.counts.refused_maps += 1;
            return false;
        }
        self.counts.maps += 1;
        self.counts.bytes_taken += size;
        let fresh = self.mapped.insert(addr, addr + size);
        self.demand(fresh, || format!("map({addr:#x}, {size}) maps something twice or nothing"));
        true
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        self.note(Call::Unmap { addr, size });
        self.counts.unmaps += 1;
        self.counts.bytes_returned += size;
        let known = size > 0 && self.mapped.remove_covered(addr, addr + size);
        self.demand(known, || format!("unmap({addr:#x}, {size}) unmaps what is not mapped"));
        self.inner.unmap(addr, size);
    }

    fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        self.inner.total_bytes()
    }

    fn record_event(&mut self, stream: u64) -> u64 {
        if !self.holds_events {
            return self.inner.record_event(stream);
        }
        self.next_event += 1;
        self.waiting.push((stream, self.next_event));
        self.next_event
    }

    fn event_done(&mut self, event: u64) -> bool {
        if !self.holds_events {
            return self.inner.event_done(event);
        }
        !self.waiting.iter().any(|(_, e)| *e == event)
    }
}

/// An address order chosen by value.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum AnyPlacement {
    Rising(RisingPlacement),
    Falling(FallingPlacement),
    Shuffled(ShuffledPlacement),
    Driver(DriverPlacement),
}

impl AnyPlacement {
    /// The order that belongs to a number: a fair choice for a random one.
    pub fn numbered(number: u64) -> Self {
        match number % 5 {
            0 => Self::Rising(RisingPlacement::default()),
            1 => Self::Falling(FallingPlacement::default()),
            2 => Self::Driver(DriverPlacement::default()),
            _ => Self::Shuffled(ShuffledPlacement::new(number)),
        }
    }

    fn as_dyn(&mut self) -> &mut dyn Placement {
        match self {
            Self::Rising(p) => p,
            Self::Falling(p) => p,
            Self::Shuffled(p) => p,
            Self::Driver(p) => p,
        }
    }
}

impl Placement for AnyPlacement {
    fn place(&mut self, size: u64) -> u64 {
        self.as_dyn().place(size)
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.as_dyn().release(addr, size);
    }

    fn reserve(&mut self, size: u64) -> u64 {
        self.as_dyn().reserve(size)
    }
}

/// The device of random programs: watched, with any address order and events that a test lets pass.
pub type TestDevice = Watched<SimDevice<AnyPlacement>>;

/// A [`TestDevice`] of `total` bytes.
pub fn test_device(total: u64, placement: u64) -> TestDevice {
    Watched::new(SimDevice::new(total, AnyPlacement::numbered(placement))).holding_events()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn watched() -> TestDevice {
        test_device(100 * MIB, 0)
    }

    #[test]
    fn freeing_half_a_segment_is_a_fault() {
        let mut device = watched();
        let addr = device.malloc(20 * MIB).expect("there is room");
        device.free(addr, 10 * MIB);
        assert!(device.fault().is_some_and(|f| f.contains("no whole segment")));
    }

    #[test]
    fn mapping_twice_or_outside_or_unmapping_nothing_is_a_fault() {
        let mut device = watched();
        let base = device.reserve(20 * MIB).expect("address space");
        assert!(device.map(base, 4 * MIB));
        assert!(device.map(base + 4 * MIB, 4 * MIB));
        device.unmap(base + 2 * MIB, 4 * MIB);
        assert!(device.map(base + 4 * MIB, 2 * MIB));
        assert_eq!(device.fault(), None);
        assert_eq!(device.held_bytes(), 6 * MIB);
        let faulty = |act: fn(&mut TestDevice, u64)| {
            let mut copy = device.clone();
            act(&mut copy, base);
            copy.fault().is_some()
        };
        assert!(faulty(|d, base| assert!(d.map(base, 2 * MIB))));
        assert!(faulty(|d, base| assert!(d.map(base + 20 * MIB, 2 * MIB))));
        assert!(faulty(|d, base| d.unmap(base + 2 * MIB, 4 * MIB)));
        assert!(faulty(|d, base| d.release_reservation(base, 20 * MIB)));
    }

    #[test]
    fn events_pass_per_stream_and_in_order() {
        let mut device = watched();
        let [a, b, c] = [7, 7, 8].map(|stream| device.record_event(stream));
        device.pass_events(7, 1);
        assert_eq!([a, b, c].map(|e| device.event_done(e)), [true, false, false]);
        device.pass_events(8, 9);
        assert_eq!([a, b, c].map(|e| device.event_done(e)), [true, false, true]);
    }

    #[test]
    fn above_the_ceiling_the_device_refuses_although_it_has_room() {
        let mut device = watched();
        device.set_ceiling(Some(30 * MIB));
        assert!(device.malloc(20 * MIB).is_some());
        assert!(device.malloc(20 * MIB).is_none());
        assert_eq!(device.free_bytes(), 80 * MIB);
        assert_eq!(device.counts().refused_mallocs, 1);
    }
}

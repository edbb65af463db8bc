//! A device whose streams run late: work is queued, and runs when the test says or when somebody waits for it.

use std::collections::{BTreeMap, VecDeque};

use vramwise_arena::{Device, Event, Failure, Handle};

/// The stream that captures use; work on it never runs by itself.
pub(crate) const CAPTURED: u64 = 77;

const PAGE: u64 = 2 << 20;

/// A small generator of numbers (xorshift), so that a seed tells a program.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound.max(1)
    }
}

enum Work {
    Write { address: u64, size: u64, tag: u64 },
    Read { address: u64, size: u64, tag: u64 },
    Signal(u64),
    Wait(u64),
}

/// See the module.
pub(crate) struct LateDevice {
    total: u64,
    used: u64,
    next: u64,
    next_address: u64,
    /// Handle → bytes.
    handles: BTreeMap<u64, u64>,
    /// Start of a mapping → bytes, handle, usable.
    mappings: BTreeMap<u64, (u64, u64, bool)>,
    /// What lies in a handle: from, to, the tag written last.
    contents: BTreeMap<u64, Vec<(u64, u64, u64)>>,
    streams: BTreeMap<u64, VecDeque<Work>>,
    done: BTreeMap<u64, bool>,
    random: Random,
    pub(crate) faults: bool,
    pub(crate) capturing: bool,
}

impl LateDevice {
    pub(crate) fn new(total: u64, seed: u64) -> Self {
        Self {
            total,
            used: 0,
            next: 1,
            next_address: 1 << 40,
            handles: BTreeMap::new(),
            mappings: BTreeMap::new(),
            contents: BTreeMap::new(),
            streams: BTreeMap::new(),
            done: BTreeMap::new(),
            random: Random(seed ^ 0x5DEE_CE66),
            faults: false,
            capturing: false,
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn write(&mut self, stream: u64, address: u64, size: u64, tag: u64) {
        self.queue(stream, Work::Write { address, size, tag });
    }

    pub(crate) fn read(&mut self, stream: u64, address: u64, size: u64, tag: u64) {
        self.queue(stream, Work::Read { address, size, tag });
    }

    /// Later work of `after` waits for what is queued on `before` now.
    pub(crate) fn order(&mut self, before: u64, after: u64) {
        let event = self.signal(before);
        self.queue(after, Work::Wait(event));
    }

    fn signal(&mut self, stream: u64) -> u64 {
        let event = self.next;
        self.next += 1;
        self.done.insert(event, false);
        self.queue(stream, Work::Signal(event));
        event
    }

    fn queue(&mut self, stream: u64, work: Work) {
        // A captured stream's work runs at the end of time at the earliest; here: at once, as nothing else of the
        // program may depend on it and its memory is nobody else's.
        self.streams.entry(stream).or_default().push_back(work);
        if stream == CAPTURED {
            while self.run_one(CAPTURED) {}
        }
    }

    /// Runs a little of some stream.
    pub(crate) fn run_some(&mut self) {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        let Some(at) = self.random.below(streams.len() as u64 + 1).checked_sub(1) else { return };
        for _ in 0..self.random.below(40) {
            self.run_one(streams[at as usize]);
        }
    }

    /// Runs everything.
    pub(crate) fn run_all(&mut self) {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        while streams.iter().any(|s| self.run_one(*s)) {}
        assert!(self.streams.values().all(VecDeque::is_empty), "streams wait for each other");
    }

    fn run_one(&mut self, stream: u64) -> bool {
        let Some(work) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else {
            return false;
        };
        match work {
            Work::Write { address, size, tag } => {
                for (handle, from, to) in self.resolve(address, size) {
                    let held = self.contents.entry(handle).or_default();
                    let mut kept = Vec::new();
                    for (a, b, t) in held.drain(..) {
                        if a < from {
                            kept.push((a, b.min(from), t));
                        }
                        if b > to {
                            kept.push((a.max(to), b, t));
                        }
                    }
                    kept.push((from, to, tag));
                    *held = kept;
                }
            }
            Work::Read { address, size, tag } => {
                for (handle, from, to) in self.resolve(address, size) {
                    let held = self.contents.get(&handle).map(Vec::as_slice).unwrap_or_default();
                    let right: u64 = held
                        .iter()
                        .filter(|(_, _, t)| *t == tag)
                        .map(|(a, b, _)| to.min(*b).saturating_sub(from.max(*a)))
                        .sum();
                    assert_eq!(right, to - from, "block {tag} at {address:#x} was overwritten");
                }
            }
            Work::Signal(event) => {
                self.done.insert(event, true);
            }
            Work::Wait(event) => {
                if self.done.get(&event) == Some(&false) {
                    self.streams.entry(stream).or_default().push_front(Work::Wait(event));
                    return false;
                }
            }
        }
        true
    }

    /// Pieces of physical memory under a range: handle, from, to.
    fn resolve(&self, address: u64, size: u64) -> Vec<(u64, u64, u64)> {
        let end = address + size;
        let first =
            self.mappings.range(..=address).next_back().map_or(address, |(start, _)| *start);
        let mut at = address;
        let mut pieces = Vec::new();
        for (start, (bytes, handle, usable)) in self.mappings.range(first..end) {
            assert!(*start <= at && *usable, "work on {at:#x}, which is not mapped");
            let to = end.min(start + bytes);
            pieces.push((*handle, at - start, to - start));
            at = to;
        }
        assert_eq!(at, end, "work on {at:#x}, which is not mapped");
        pieces
    }

    fn fails(&mut self) -> bool {
        self.faults && self.random.below(12) == 0
    }
}

impl Device for LateDevice {
    fn reserve(&mut self, bytes: u64, align: u64) -> Option<u64> {
        if self.fails() {
            return None;
        }
        let base = self.next_address.next_multiple_of(align);
        self.next_address = base + bytes;
        (self.next_address < 1 << 47).then_some(base)
    }

    fn create(&mut self, bytes: u64) -> Result<Handle, Failure> {
        assert!(bytes.is_multiple_of(PAGE) && bytes > 0);
        if self.used + bytes > self.total {
            return Err(Failure::OutOfMemory);
        }
        if self.fails() {
            return Err(Failure::Driver(999));
        }
        self.used += bytes;
        self.next += 1;
        self.handles.insert(self.next, bytes);
        Ok(Handle(self.next))
    }

    fn release(&mut self, handle: Handle, bytes: u64) {
        assert_eq!(self.handles.remove(&handle.0), Some(bytes), "released what is not there");
        assert!(self.mappings.values().all(|(_, h, _)| *h != handle.0), "released while mapped");
        self.contents.remove(&handle.0);
        self.used -= bytes;
    }

    fn map(&mut self, addr: u64, bytes: u64, handle: Handle) -> Result<(), Failure> {
        assert_eq!(self.handles.get(&handle.0), Some(&bytes), "a handle is mapped whole");
        let below = self.mappings.range(..addr + bytes).next_back();
        assert!(
            below.is_none_or(|(start, (b, ..))| start + b <= addr),
            "mapped over a mapping at {addr:#x}"
        );
        if self.fails() {
            return Err(Failure::Driver(1));
        }
        self.mappings.insert(addr, (bytes, handle.0, false));
        Ok(())
    }

    fn set_access(&mut self, addr: u64, bytes: u64) -> Result<(), Failure> {
        if self.fails() {
            return Err(Failure::Driver(2));
        }
        let mut at = addr;
        for (start, mapping) in self.mappings.range_mut(addr..addr + bytes) {
            assert_eq!(*start, at);
            at += mapping.0;
            mapping.2 = true;
        }
        assert_eq!(at, addr + bytes, "access to what is not mapped");
        Ok(())
    }

    fn unmap(&mut self, addr: u64, bytes: u64) -> Result<(), Failure> {
        let usable = self.mappings.get(&addr).is_some_and(|m| m.2);
        // Taking back a mapping that was never usable is not made to fail: nothing could be done about it.
        if usable && self.fails() {
            return Err(Failure::Driver(3));
        }
        assert_eq!(
            self.mappings.remove(&addr).map(|m| m.0),
            Some(bytes),
            "unmapped what is not mapped"
        );
        for work in self.streams.values().flatten() {
            if let Work::Write { address, size, .. } | Work::Read { address, size, .. } = work {
                let apart = address + size <= addr || *address >= addr + bytes;
                assert!(apart, "unmapped while work on it is queued");
            }
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn free(&self) -> u64 {
        self.total - self.used
    }

    fn record(&mut self, stream: u64) -> Result<Event, Failure> {
        assert!(!(self.capturing && stream == CAPTURED), "an event in a capture");
        if self.fails() {
            return Err(Failure::Driver(4));
        }
        Ok(Event(self.signal(stream)))
    }

    fn is_done(&mut self, event: Event) -> bool {
        self.run_some();
        self.done.get(&event.0) == Some(&true)
    }

    fn wait(&mut self, stream: u64, event: Event) -> Result<(), Failure> {
        assert!(!(self.capturing && stream == CAPTURED), "a wait in a capture");
        if self.fails() {
            return Err(Failure::Driver(5));
        }
        self.queue(stream, Work::Wait(event.0));
        Ok(())
    }

    fn synchronize(&mut self, event: Event) -> Result<(), Failure> {
        if self.fails() {
            return Err(Failure::Driver(6));
        }
        while self.done.get(&event.0) == Some(&false) {
            let streams: Vec<u64> = self.streams.keys().copied().collect();
            assert!(streams.iter().any(|s| self.run_one(*s)), "waits for ever");
        }
        Ok(())
    }

    fn forget(&mut self, event: Event) {
        // The stream's signal may still come; a wait for it counts as done only then.
        let _ = event;
    }

    fn is_capturing(&mut self, stream: u64) -> bool {
        self.capturing && stream == CAPTURED
    }
}

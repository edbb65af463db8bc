//! A device that is only arithmetic: it counts memory and checks that it is asked for what a driver allows.

use std::collections::BTreeMap;

use crate::device::{Device, Event, Failure, Handle};

/// First reservation; far from null, so that an address is never mistaken for a size.
const FIRST: u64 = 0x10_0000_0000;

/// Counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// `cuMemCreate`.
    pub create: u64,
    /// `cuMemRelease`.
    pub release: u64,
    /// `cuMemMap`.
    pub map: u64,
    /// `cuMemSetAccess`, in handles: its cost is per handle.
    pub access: u64,
    /// `cuMemUnmap`.
    pub unmap: u64,
    /// Events recorded.
    pub record: u64,
    /// Waits of one stream for another.
    pub wait: u64,
    /// Waits of the host.
    pub synchronize: u64,
}

/// Memory that is a number. Events are done at once.
#[derive(Debug)]
pub struct SimDevice {
    total: u64,
    used: u64,
    peak: u64,
    next_address: u64,
    next_handle: u64,
    next_event: u64,
    handles: BTreeMap<u64, u64>,
    calls: Calls,
}

impl SimDevice {
    /// A device of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            used: 0,
            peak: 0,
            next_address: FIRST,
            next_handle: 0,
            next_event: 0,
            handles: BTreeMap::new(),
            calls: Calls::default(),
        }
    }

    /// The most bytes that were taken at one time.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// What was asked of it.
    pub fn calls(&self) -> Calls {
        self.calls
    }
}

impl Device for SimDevice {
    fn reserve(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let base = self.next_address.next_multiple_of(align);
        let end = base.checked_add(bytes).filter(|end| *end < 1 << 47)?;
        self.next_address = end;
        Some(base)
    }

    fn create(&mut self, bytes: u64) -> Result<Handle, Failure> {
        if self.used + bytes > self.total {
            return Err(Failure::OutOfMemory);
        }
        self.calls.create += 1;
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        self.next_handle += 1;
        self.handles.insert(self.next_handle, bytes);
        Ok(Handle(self.next_handle))
    }

    fn release(&mut self, handle: Handle, bytes: u64) {
        self.calls.release += 1;
        if self.handles.remove(&handle.0) == Some(bytes) {
            self.used -= bytes;
        }
    }

    fn map(&mut self, _addr: u64, _bytes: u64, _handle: Handle) -> Result<(), Failure> {
        self.calls.map += 1;
        self.calls.access += 1;
        Ok(())
    }

    fn set_access(&mut self, _addr: u64, _bytes: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn unmap(&mut self, _addr: u64, _bytes: u64) -> Result<(), Failure> {
        self.calls.unmap += 1;
        Ok(())
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn free(&self) -> u64 {
        self.total - self.used
    }

    fn record(&mut self, _stream: u64) -> Result<Event, Failure> {
        self.calls.record += 1;
        self.next_event += 1;
        Ok(Event(self.next_event))
    }

    fn is_done(&mut self, _event: Event) -> bool {
        true
    }

    fn wait(&mut self, _stream: u64, _event: Event) -> Result<(), Failure> {
        self.calls.wait += 1;
        Ok(())
    }

    fn synchronize(&mut self, _event: Event) -> Result<(), Failure> {
        self.calls.synchronize += 1;
        Ok(())
    }

    fn forget(&mut self, _event: Event) {}

    fn is_capturing(&mut self, _stream: u64) -> bool {
        false
    }
}

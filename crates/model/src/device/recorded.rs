//! Addresses of a recording for as long as the device calls equal the recorded ones (specification §17.4).

use std::sync::Arc;

use super::{DriverPlacement, Placement};

/// One device call of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCall {
    /// `cudaMalloc` of that size, answered with that address.
    Malloc {
        /// Bytes.
        size: u64,
        /// The address that the driver gave.
        addr: u64,
    },
    /// `cudaFree` of that address.
    Free {
        /// The freed segment's address.
        addr: u64,
    },
}

/// Recorded addresses first; the driver's model from the first different call on.
#[derive(Clone, Debug)]
pub struct RecordedPlacement {
    calls: Arc<[DeviceCall]>,
    next: usize,
    parted: bool,
    driver: DriverPlacement,
}

impl RecordedPlacement {
    /// Follows these calls.
    pub fn new(calls: Arc<[DeviceCall]>) -> Self {
        Self { calls, next: 0, parted: false, driver: DriverPlacement::default() }
    }

    /// Whether a device call differed from the recording.
    pub fn parted(&self) -> bool {
        self.parted
    }

    fn expect(&mut self, wanted: impl Fn(&DeviceCall) -> bool) -> Option<DeviceCall> {
        if self.parted {
            return None;
        }
        let call = self.calls.get(self.next).copied().filter(wanted);
        self.next += 1;
        self.parted = call.is_none();
        call
    }
}

impl Placement for RecordedPlacement {
    fn place(&mut self, size: u64) -> u64 {
        let same =
            |call: &DeviceCall| matches!(call, DeviceCall::Malloc { size: s, .. } if *s == size);
        match self.expect(same) {
            Some(DeviceCall::Malloc { addr, .. }) => {
                self.driver.adopt(addr, size);
                addr
            }
            _ => self.driver.place(size),
        }
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.expect(|call| *call == DeviceCall::Free { addr });
        self.driver.release(addr, size);
    }

    fn reserve(&mut self, size: u64) -> u64 {
        self.driver.reserve(size)
    }
}

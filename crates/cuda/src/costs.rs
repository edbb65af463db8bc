//! What the driver's calls cost: how many there were of each kind, how long they took.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `cuMemAddressReserve`.
    Reserve,
    /// `cuMemCreate`.
    Create,
    /// `cuMemRelease`.
    Release,
    /// `cuMemMap`.
    Map,
    /// `cuMemSetAccess`.
    SetAccess,
    /// `cuMemUnmap`.
    Unmap,
    /// `cuMemGetInfo`.
    Info,
    /// `cuEventRecord` and `cuStreamWaitEvent`.
    Order,
    /// `cuEventQuery` and `cuStreamIsCapturing`.
    Query,
    /// `cuEventSynchronize`: work on the device is waited for.
    Wait,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Reserve,
        Self::Create,
        Self::Release,
        Self::Map,
        Self::SetAccess,
        Self::Unmap,
        Self::Info,
        Self::Order,
        Self::Query,
        Self::Wait,
    ];

    /// The call's name, or that of the first of its kind.
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Reserve => c"cuMemAddressReserve",
            Self::Create => c"cuMemCreate",
            Self::Release => c"cuMemRelease",
            Self::Map => c"cuMemMap",
            Self::SetAccess => c"cuMemSetAccess",
            Self::Unmap => c"cuMemUnmap",
            Self::Info => c"cuMemGetInfo",
            Self::Order => c"cuEventRecord",
            Self::Query => c"cuEventQuery",
            Self::Wait => c"cuEventSynchronize",
        }
    }
}

/// The calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How many.
    pub count: u64,
    /// Time of all together on the host's clock.
    pub total: Duration,
    /// Time of the longest.
    pub longest: Duration,
}

/// The calls of a device. Only what a miss needs is counted here, so that the clock costs nothing that matters: a
/// reading takes 20 to 50 ns, the shortest of these calls a microsecond.
#[derive(Debug, Default)]
pub(crate) struct Costs([Cell<Cost>; Call::ALL.len()]);

impl Costs {
    /// Runs a call and counts it.
    pub(crate) fn measure<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        let took = start.elapsed();
        let cell = &self.0[call as usize];
        let before = cell.get();
        cell.set(Cost {
            count: before.count + 1,
            total: before.total + took,
            longest: before.longest.max(took),
        });
        result
    }

    /// What was counted.
    pub(crate) fn of(&self, call: Call) -> Cost {
        self.0[call as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_kind() {
        let costs = Costs::default();
        let nap = Duration::from_millis(2);
        assert_eq!(costs.measure(Call::Map, || 7), 7);
        costs.measure(Call::Map, || std::thread::sleep(nap));
        let map = costs.of(Call::Map);
        assert_eq!(map.count, 2);
        assert!(map.longest >= nap && map.total >= map.longest);
        assert_eq!(costs.of(Call::Unmap), Cost::default());
    }

    #[test]
    fn each_kind_has_its_place() {
        for (index, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, index);
        }
    }
}

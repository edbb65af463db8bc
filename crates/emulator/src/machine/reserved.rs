//! What the driver itself has placed among a program's allocations: it decides which addresses these get.
//!
//! Found from `/proc/self/maps` around each call and from the addresses of first allocations, on an H200 with driver
//! 580.159. The bytes are part of the context; here only their places count.

use vramwise_model::device::{DriverPlacement, Placement};

const MIB: u64 = 1 << 20;

/// At the context's start: a chunk of which 8 MiB are in use, one of 64 MiB beside device memory, and the memory for what
/// kernels spill, which leaves 2 MiB of its chunk free.
const AT_START: [u64; 2] = [8 * MIB, 64 * MIB];
const SPILLED: u64 = 414 * MIB;
/// When the first kernel loads its module: a table, its code, which begins a chunk even where others have just as much room,
/// and other memory for what kernels spill, before the first goes back.
const TABLE: u64 = 10 * MIB;
const CODE: u64 = 26 * MIB;
const AT_FIRST_KERNEL: [u64; 2] = [64 * MIB, 416 * MIB];
/// For the first handle of cuBLAS.
const AT_FIRST_HANDLE: [u64; 3] = [64 * MIB, 2 * MIB, 10 * MIB];
/// Eight streams share a page: PyTorch's 128 take 32 MiB.
const STREAMS_IN_A_PAGE: u32 = 8;

/// What the driver holds beside the program's memory on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    spilled: Option<u64>,
    streams: u32,
    multiplies: bool,
}

impl Reserved {
    /// The context is made.
    pub(super) fn start(&mut self, placement: &mut DriverPlacement) {
        for bytes in AT_START {
            placement.place(bytes);
        }
        self.spilled = Some(placement.place(SPILLED));
    }

    /// The first kernel is loaded.
    pub(super) fn first_kernel(&mut self, placement: &mut DriverPlacement) {
        placement.place(TABLE);
        placement.place_apart(CODE);
        for bytes in AT_FIRST_KERNEL {
            placement.place(bytes);
        }
        if let Some(addr) = self.spilled.take() {
            placement.release(addr, SPILLED);
        }
    }

    /// A handle of cuBLAS is made.
    pub(super) fn handle(&mut self, placement: &mut DriverPlacement) {
        if !std::mem::replace(&mut self.multiplies, true) {
            for bytes in AT_FIRST_HANDLE {
                placement.place(bytes);
            }
        }
    }

    /// A stream is made.
    pub(super) fn stream(&mut self, placement: &mut DriverPlacement) {
        if self.streams.is_multiple_of(STREAMS_IN_A_PAGE) {
            placement.place(2 * MIB);
        }
        self.streams += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first segments of a small transformer, as they lay on an H200 against the first of them.
    #[test]
    fn segments_lie_as_on_a_card() {
        let (mut placement, mut reserved) = (DriverPlacement::default(), Reserved::default());
        reserved.start(&mut placement);
        let first = placement.place(16 * MIB);
        assert_eq!(placement.place(2 * MIB), first - 74 * MIB, "behind what kernels spill");
        assert_eq!(placement.place(20 * MIB), first - 520 * MIB, "below all of the driver's");
        let last = placement.place(20 * MIB);
        reserved.first_kernel(&mut placement);
        let code = placement.place(2 * MIB);
        assert_eq!(code, last - 6 * MIB, "behind the code of the first kernel");
        assert_eq!(placement.place(2 * MIB), code + 2 * MIB);
        reserved.handle(&mut placement);
        reserved.handle(&mut placement);
        assert_eq!(placement.place(32 * MIB), first - 424 * MIB, "where kernels spilled before");
        assert_eq!(placement.place(20 * MIB), first - 392 * MIB);
    }

    /// The beginning of a MobileBERT, as it lay on an H200: between its segments there was room for the code of kernels.
    #[test]
    fn code_begins_a_chunk() {
        let (mut placement, mut reserved) = (DriverPlacement::default(), Reserved::default());
        reserved.start(&mut placement);
        let first = placement.place(16 * MIB);
        let at = |placement: &mut DriverPlacement, mib| {
            (placement.place(mib * MIB) as i64 - first as i64) / MIB as i64
        };
        let small: Vec<i64> = (0..40).map(|_| at(&mut placement, 2)).collect();
        assert_eq!(small[..7], [-74, 16, 18, 20, 22, -520, -518]);
        assert_eq!(small[37..], [-584, -582, -580]);
        assert_eq!([at(&mut placement, 46), at(&mut placement, 2)], [-648, -602]);
        reserved.first_kernel(&mut placement);
        assert_eq!([at(&mut placement, 2), at(&mut placement, 20)], [-654, -578]);
    }

    /// A pool of streams takes 32 MiB: here what is left beside the first two chunks, and 6 MiB of a new one.
    #[test]
    fn streams_share_pages() {
        let (mut placement, mut reserved) = (DriverPlacement::default(), Reserved::default());
        reserved.start(&mut placement);
        for _ in 0..128 {
            reserved.stream(&mut placement);
        }
        let first = placement.place(2 * MIB);
        assert_eq!(first % (32 * MIB), 6 * MIB);
        assert_eq!(placement.place(2 * MIB), first + 2 * MIB);
    }
}

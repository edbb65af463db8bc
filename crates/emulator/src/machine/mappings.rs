//! What the driver maps into the process beside its chunks: libraries, the stacks and heaps of its threads, windows to the
//! card. Where a program has freed host memory, such as a model that moved to the device, these fill the gaps that chunks
//! would otherwise get, and so decide about addresses of device memory.
//!
//! Found from `/proc/self/maps` before and after, on an H200 with driver 580.159. Nothing lies in them here.

use std::sync::Once;

use super::host::{HOST_PAGE, give_back, map_anywhere, moved};

const MIB: u64 = 1 << 20;

/// A thread's stack and its guard page, as glibc makes them where `ulimit -s` is the usual 8 MiB.
const STACK: u64 = 8 * MIB + HOST_PAGE;
/// A window to the card's registers, of which most is only reserved.
const WINDOW: u64 = 19_009_536;

/// Bytes of a heap of glibc's.
const HEAP: u64 = 64 * MIB;
/// `cuInit`: a thread, a table, a window.
const AT_INITIALISATION: [u64; 3] = [STACK, 2_699_264, WINDOW];
/// After them and the thread's heap: addresses that host and device share.
const SHARED: u64 = 8256 * MIB;
/// The first context: a table, NVML, another thread, a window and a page for signals.
const AT_FIRST_CONTEXT: [u64; 5] = [13_983_744, 2_297_856, STACK, WINDOW, 2 * MIB];

/// The first call that needs the driver. What a program maps later comes below it.
pub(crate) fn initialise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        take(&AT_INITIALISATION);
        take_heap();
        take(&[SHARED]);
    });
}

/// The first context of the process, before its chunks.
pub(crate) fn first_context() {
    static ONCE: Once = Once::new();
    initialise();
    ONCE.call_once(|| {
        take(&AT_FIRST_CONTEXT);
        take_heap();
    });
}

/// Maps each; where the system refuses, addresses are as if the driver had done without.
fn take(all: &[u64]) {
    for bytes in all {
        let _ = map_anywhere(*bytes);
    }
}

/// The heap of a new thread, as glibc takes it: twice the size, of which it keeps the first aligned part.
fn take_heap() {
    let Some(at) = map_anywhere(2 * HEAP) else { return };
    let before = before_heap(at, moved());
    give_back(at, before);
    give_back(at + before + HEAP, HEAP - before);
}

/// Bytes before the aligned part of what was mapped at `at`. It is aligned as it would be where the system had not moved the
/// process, so that it does not depend on chance.
fn before_heap(at: u64, moved: u64) -> u64 {
    at.wrapping_add(moved).wrapping_neg() % HEAP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_aligned_however_far_the_process_was_moved() {
        assert_eq!(before_heap(0x7fe6_e4b4_6000, 0), 0x7fe6_e800_0000 - 0x7fe6_e4b4_6000);
        assert_eq!(before_heap(0x7fe6_e400_0000, 0), 0);
        let (at, moved) = (0x7000_0123_4000, 0x0f00_0020_0000);
        assert_eq!((at + before_heap(at, moved) + moved) % HEAP, 0);
        assert_eq!(before_heap(at - 6 * MIB, moved + 6 * MIB), before_heap(at, moved));
    }
}

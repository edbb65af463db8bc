//! Looking at the state.

use std::ffi::{c_int, c_void};

use vramwise_cuda::Call;

use super::{put, with, with_existing};
use crate::message;
use crate::table::{
    Block, Calls, INVALID, OK, OnBlock, OnSegment, Pool, Segment, ShortageC, StatsC,
};

pub(super) extern "C" fn shortage(
    device: i32,
    stream: u64,
    pool: Pool,
    out: *mut ShortageC,
) -> c_int {
    with(device, |heap| {
        put(out, heap.shortage(stream, pool.into()).into());
        OK
    })
}

pub(super) extern "C" fn count_oom(device: i32) -> c_int {
    with(device, |heap| {
        heap.count_oom();
        OK
    })
}

pub(super) extern "C" fn largest_free(device: i32) -> u64 {
    let mut bytes = 0;
    with_existing(device, |heap| {
        bytes = heap.largest_free(None);
        OK
    });
    bytes
}

pub(super) extern "C" fn movable(device: i32) -> u64 {
    let mut bytes = 0;
    with_existing(device, |heap| {
        bytes = heap.movable();
        OK
    });
    bytes
}

pub(super) extern "C" fn driver_calls(device: i32, out: *mut Calls, capacity: usize) -> usize {
    let mut kinds = 0;
    with_existing(device, |heap| {
        kinds = Call::ALL.len();
        for (index, call) in Call::ALL.into_iter().enumerate().take(capacity) {
            let cost = heap.device().cost(call);
            let calls = Calls {
                name: call.name().as_ptr(),
                count: cost.count,
                total_ns: cost.total.as_nanos() as u64,
                longest_ns: cost.longest.as_nanos() as u64,
            };
            // The caller has room for `capacity` entries, as the header says.
            put(out.wrapping_add(index), calls);
        }
        OK
    });
    kinds
}

pub(super) extern "C" fn stats(device: i32, out: *mut StatsC) -> c_int {
    put(out, StatsC::default());
    with_existing(device, |heap| {
        put(out, heap.stats().into());
        OK
    })
}

pub(super) extern "C" fn reset_peak_stats(device: i32) -> c_int {
    with_existing(device, |heap| {
        heap.reset_peaks();
        OK
    })
}

pub(super) extern "C" fn reset_accumulated_stats(device: i32) -> c_int {
    with_existing(device, |heap| {
        heap.reset_accumulated();
        OK
    })
}

pub(super) extern "C" fn walk(
    device: i32,
    pool: *const Pool,
    context: *mut c_void,
    on_segment: Option<OnSegment>,
    on_block: Option<OnBlock>,
) -> c_int {
    // SAFETY: null or the caller's, as the header says.
    let only = unsafe { pool.as_ref() }.copied();
    with_existing(device, |heap| {
        heap.walk(|segment, blocks| {
            if only.is_some_and(|p| (p.first, p.second) != segment.pool) {
                return;
            }
            // SAFETY: the caller's functions with the caller's context.
            unsafe {
                if let Some(on_segment) = on_segment {
                    on_segment(context, &Segment::new(device, segment));
                }
                if let Some(on_block) = on_block {
                    for block in blocks {
                        on_block(context, &Block::new(device, block));
                    }
                }
            }
        });
        OK
    })
}

pub(super) extern "C" fn check(device: i32) -> c_int {
    with_existing(device, |heap| match heap.check() {
        Ok(()) => OK,
        Err(violation) => {
            message::set(&violation.to_string());
            INVALID
        }
    })
}

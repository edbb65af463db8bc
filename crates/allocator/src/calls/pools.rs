//! Private pools, captures, and giving memory back.

use std::ffi::{c_int, c_void};

use vramwise_arena::{AllocError, Saved};

use super::{failed, status, with, with_each};
use crate::message;
use crate::table::{Block, INVALID, OK, OnBlock, Pool};

pub(super) extern "C" fn retain(device: i32, pool: Pool) -> c_int {
    with(device, |heap| status(heap.pool_retain(pool.into()).map(|_| ())))
}

pub(super) extern "C" fn release(device: i32, pool: Pool) -> c_int {
    with(device, |heap| status(heap.pool_release(pool.into()).map(|_| ())))
}

pub(super) extern "C" fn users(device: i32, pool: Pool) -> i64 {
    let mut users = -1;
    with(device, |heap| {
        users = heap.pool_users(pool.into()).unwrap_or(-1);
        OK
    });
    users
}

pub(super) extern "C" fn capture_begin(device: i32, _pool: Pool) -> c_int {
    with(device, |heap| {
        heap.capture_begin();
        OK
    })
}

pub(super) extern "C" fn capture_end(device: i32, _pool: Pool) -> c_int {
    with(device, |heap| {
        heap.capture_end();
        OK
    })
}

pub(super) extern "C" fn use_on_oom(device: i32, pool: Pool, on: c_int) -> c_int {
    with(device, |heap| status(heap.pool_use_on_oom(pool.into(), on != 0)))
}

pub(super) extern "C" fn restore(
    device: i32,
    pool: Pool,
    live: *const Block,
    count: usize,
    context: *mut c_void,
    freed: Option<OnBlock>,
    made: Option<OnBlock>,
) -> c_int {
    if live.is_null() && count > 0 {
        message::set("no blocks are given, but a number of them");
        return INVALID;
    }
    let blocks = if count == 0 {
        &[][..]
    } else {
        // SAFETY: the caller has `count` blocks there.
        unsafe { std::slice::from_raw_parts(live, count) }
    };
    let saved: Vec<Saved> = blocks
        .iter()
        .map(|b| Saved {
            address: b.address,
            size: b.size,
            requested: b.requested,
            stream: b.stream,
        })
        .collect();
    let tell = |callback: Option<OnBlock>, block: Block| {
        if let Some(callback) = callback {
            // SAFETY: the caller's function with the caller's context.
            unsafe { callback(context, &block) };
        }
    };
    with(device, |heap| {
        status(heap.pool_restore(
            pool.into(),
            &saved,
            |info| tell(freed, Block::new(device, info)),
            |info| tell(made, Block::new(device, info)),
        ))
    })
}

pub(super) extern "C" fn empty_cache(device: i32, pool: Pool) -> c_int {
    let (mut known, mut asked) = (false, false);
    let status = with_each(device, |heap| {
        asked = true;
        match heap.empty_cache(pool.into()) {
            // Of all devices one that has the pool is enough.
            Err(AllocError::UnknownPool) => OK,
            Err(error) => failed(error),
            Ok(()) => {
                known = true;
                OK
            }
        }
    });
    if status == OK && asked && !known { failed(AllocError::UnknownPool) } else { status }
}

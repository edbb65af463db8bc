//! Getting and giving back blocks: the hot path.

use std::ffi::c_int;

use super::{failed, put, with};
use crate::table::{Block, NOT_READY, OK, Pool, UNKNOWN_ADDRESS};
use crate::{engine, message};

pub(super) extern "C" fn alloc(
    device: i32,
    stream: u64,
    bytes: u64,
    pool: Pool,
    block: *mut Block,
) -> c_int {
    if engine::forked() {
        return NOT_READY;
    }
    let heap = match engine::heap(device) {
        Ok(heap) => heap,
        Err(why) => {
            message::set(&why);
            return NOT_READY;
        }
    };
    let mut heap = engine::lock_heap(heap);
    let result = heap.alloc(stream, bytes, pool.into());
    if heap.has_changes() {
        engine::tell(device, &mut heap);
    }
    drop(heap);
    match result {
        Ok(got) => {
            put(
                block,
                Block {
                    address: got.address,
                    size: got.size,
                    requested: bytes,
                    stream,
                    pool,
                    device,
                    small: got.small.into(),
                    state: 1,
                    reserved: [0; 2],
                },
            );
            OK
        }
        Err(error) => failed(error),
    }
}

pub(super) extern "C" fn free(address: u64, block: *mut Block) -> c_int {
    if engine::forked() {
        return OK;
    }
    let Some(device) = engine::owner(address) else { return UNKNOWN_ADDRESS };
    let Some(heap) = engine::existing(device) else { return UNKNOWN_ADDRESS };
    let mut heap = engine::lock_heap(heap);
    let freed = heap.free(address);
    if heap.has_changes() {
        engine::tell(device, &mut heap);
    }
    drop(heap);
    match freed {
        Some(info) => {
            if !block.is_null() {
                put(block, Block::new(device, &info));
            }
            OK
        }
        None => UNKNOWN_ADDRESS,
    }
}

pub(super) extern "C" fn record_stream(address: u64, stream: u64) -> c_int {
    if engine::forked() {
        return OK;
    }
    let Some(device) = engine::owner(address) else { return UNKNOWN_ADDRESS };
    with(device, |heap| if heap.record_stream(address, stream) { OK } else { UNKNOWN_ADDRESS })
}

pub(super) extern "C" fn find(address: u64, block: *mut Block) -> c_int {
    let Some(device) = engine::owner(address) else { return UNKNOWN_ADDRESS };
    with(device, |heap| match heap.find(address) {
        Some(info) => {
            put(block, Block::new(device, &info));
            OK
        }
        None => UNKNOWN_ADDRESS,
    })
}

pub(super) extern "C" fn base(address: u64, segment: *mut u64, size: *mut u64) -> c_int {
    let Some(device) = engine::owner(address) else { return UNKNOWN_ADDRESS };
    with(device, |heap| match heap.base(address) {
        Some((start, bytes)) => {
            put(segment, start);
            put(size, bytes);
            OK
        }
        None => UNKNOWN_ADDRESS,
    })
}

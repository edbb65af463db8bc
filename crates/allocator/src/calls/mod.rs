//! The functions of the table. What each does is said in `include/vramwise_engine.h`.

mod blocks;
mod look;
mod pools;
mod setup;
mod share;

use std::ffi::c_int;

use vramwise_arena::{AllocError, Heap};
use vramwise_cuda::CudaDevice;

use crate::table::{self, Engine};
use crate::{engine, message};

static TABLE: Engine = Engine {
    version: table::VERSION,
    bytes: size_of::<Engine>() as u32,
    init: setup::init,
    set_settings: setup::set_settings,
    settings: setup::settings,
    last_message: message::last,
    driver_calls: look::driver_calls,
    movable: look::movable,
    set_hooks: setup::set_hooks,
    alloc: blocks::alloc,
    free: blocks::free,
    record_stream: blocks::record_stream,
    find: blocks::find,
    base: blocks::base,
    shortage: look::shortage,
    count_oom: look::count_oom,
    pool_retain: pools::retain,
    pool_release: pools::release,
    pool_users: pools::users,
    capture_begin: pools::capture_begin,
    capture_end: pools::capture_end,
    pool_use_on_oom: pools::use_on_oom,
    pool_restore: pools::restore,
    empty_cache: pools::empty_cache,
    set_memory_fraction: setup::set_memory_fraction,
    memory_fraction: setup::memory_fraction,
    largest_free: look::largest_free,
    stats: look::stats,
    reset_peak_stats: look::reset_peak_stats,
    reset_accumulated_stats: look::reset_accumulated_stats,
    walk: look::walk,
    enable_peer: share::enable_peer,
    share: share::share,
    check: look::check,
    open_shared: share::open_shared,
    close_shared: share::close_shared,
};

/// The table, for a front of this version; null for any other.
#[unsafe(no_mangle)]
pub extern "C" fn vramwise_engine_table(version: u32) -> *const Engine {
    if version == table::VERSION { &raw const TABLE } else { std::ptr::null() }
}

/// Runs a call on a device's heap, which is made if it must.
fn with(device: i32, call: impl FnOnce(&mut Heap<CudaDevice>) -> c_int) -> c_int {
    if engine::forked() {
        message::set("CUDA cannot be used in a forked child process");
        return table::NOT_READY;
    }
    match engine::heap(device) {
        Ok(heap) => {
            let mut heap = engine::lock_heap(heap);
            let status = call(&mut heap);
            if heap.has_changes() {
                engine::tell(device, &mut heap);
            }
            status
        }
        Err(why) => {
            message::set(&why);
            table::NOT_READY
        }
    }
}

/// Runs a call on a device's heap; without one there is nothing to do.
fn with_existing(device: i32, call: impl FnOnce(&mut Heap<CudaDevice>) -> c_int) -> c_int {
    if engine::existing(device).is_none() { table::OK } else { with(device, call) }
}

/// Runs a call on the heaps of a device or of all (-1) that were used.
fn with_each(device: i32, mut call: impl FnMut(&mut Heap<CudaDevice>) -> c_int) -> c_int {
    if device >= 0 {
        return with_existing(device, call);
    }
    let mut status = table::OK;
    for device in 0..engine::DEVICES as i32 {
        let this = with_existing(device, &mut call);
        if this != table::OK {
            status = this;
        }
    }
    status
}

#[cold]
fn failed(error: AllocError) -> c_int {
    message::set(&error.to_string());
    match error {
        AllocError::OutOfMemory => table::OUT_OF_MEMORY,
        AllocError::OutOfAddresses | AllocError::Driver(_) => table::DRIVER,
        AllocError::UnknownPool => table::INVALID,
    }
}

fn status(result: Result<(), AllocError>) -> c_int {
    result.map_or_else(failed, |()| table::OK)
}

/// Writes a result where the caller wants it; a null pointer = nowhere.
fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: a pointer that is not null is to a value of the caller, as the header says.
        unsafe { to.write(value) };
    }
}

//! Names that do nothing here: they succeed, and the first call of each is noted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::abi;

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x6000_0000_1000);

/// A value for an opaque handle that no other object has.
pub(crate) fn new_handle() -> usize {
    NEXT_HANDLE.fetch_add(64, Ordering::Relaxed)
}

fn put_handle(to: usize) {
    abi::put(to as *mut usize, new_handle());
}

/// Success of `count` factorisations, in device memory (which is host memory here).
fn put_info(to: usize, count: usize) {
    // A 32-bit argument leaves the upper half of its register open.
    let count = (count as u32 as usize).min(1 << 20);
    abi::fill(to as *mut std::ffi::c_void, 0, count * 4);
}

fn put_zero<const BYTES: usize>(to: usize) {
    abi::put(to as *mut [u8; BYTES], [0; BYTES]);
}

fn seen(seen: &AtomicBool, name: &'static str) {
    if !seen.swap(true, Ordering::Relaxed) {
        crate::machine::lock().unknown_calls.push(name.to_owned());
    }
}

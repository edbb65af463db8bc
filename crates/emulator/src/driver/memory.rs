//! Allocations, copies and questions about addresses.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::put;
use crate::machine;
use crate::runtime::{self, Error};

const INVALID_VALUE: i32 = Error::InvalidValue as i32;

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> i32 {
    let device = machine::current_device();
    match machine::lock().malloc(device, bytes as u64) {
        Some(addr) => {
            put(to, addr);
            0
        }
        None => Error::MemoryAllocation as i32,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(to: *mut u64, bytes: usize, _stream: usize) -> i32 {
    runtime::malloc_async(to.cast(), bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(addr: u64) -> i32 {
    if addr == 0 || machine::lock().free(addr) { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(addr: u64, _stream: usize) -> i32 {
    cuMemFree_v2(addr)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    let device = machine::current_device();
    let machine = machine::lock();
    let Some(card) = machine.devices.get(device) else { return Error::InvalidDevice as i32 };
    put(free, card.free_bytes() as usize);
    put(total, card.total as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, addr: u64) -> i32 {
    let Some(place) = machine::lock().place_of(addr) else { return INVALID_VALUE };
    put(base, place.start);
    put(bytes, place.bytes as usize);
    0
}

/// One attribute of an address (`CUpointer_attribute`); `false` where it has none.
fn attribute(to: *mut c_void, attribute: c_int, addr: u64) -> bool {
    let machine = machine::lock();
    let place = machine.place_of(addr);
    let pinned = machine.is_pinned(addr as usize);
    if place.is_none() && !pinned {
        return false;
    }
    match attribute {
        // memory type: host 1, device 2
        2 => put(to.cast::<c_uint>(), if place.is_some() { 2 } else { 1 }),
        1 | 3 | 4 => put(to.cast::<u64>(), addr),
        // an identity that no later allocation at this address shares is not kept: addresses do
        7 => put(to.cast::<u64>(), place.map_or(addr, |p| p.start) >> 9),
        8 | 10 | 15 => put(to.cast::<c_uint>(), 0),
        9 => put(to.cast::<c_int>(), place.map_or(0, |p| p.device as c_int)),
        11 | 19 => put(to.cast::<u64>(), place.map_or(addr, |p| p.start)),
        12 | 18 => put(to.cast::<u64>(), place.map_or(0, |p| p.bytes)),
        13 => put(to.cast::<c_uint>(), 1),
        _ => put(to.cast::<u64>(), 0),
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(to: *mut c_void, which: c_int, addr: u64) -> i32 {
    if attribute(to, which, addr) { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    which: *const c_int,
    to: *const *mut c_void,
    addr: u64,
) -> i32 {
    for i in 0..count as usize {
        let parts = (crate::abi::get(which.wrapping_add(i)), crate::abi::get(to.wrapping_add(i)));
        if let (Some(which), Some(to)) = parts {
            attribute(to, which, addr);
        }
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    if runtime::host_alloc(to, bytes) { 0 } else { Error::MemoryAllocation as i32 }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(to: *mut *mut c_void, bytes: usize) -> i32 {
    cuMemHostAlloc(to, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(addr: *mut c_void) -> i32 {
    if runtime::host_free(addr) { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(to: *mut u64, host: *mut c_void, _: c_uint) -> i32 {
    put(to, host as u64);
    0
}

fn copy(to: u64, from: u64, bytes: usize) -> i32 {
    runtime::transfer(to as *mut c_void, from as *const c_void, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) -> i32 {
    copy(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> i32 {
    runtime::fill(to as *mut c_void, value, count);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, _stream: usize) -> i32 {
    cuMemsetD8_v2(to, value, count)
}

/// Fills with a value other than a repeated byte are zeros here.
#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> i32 {
    let byte = value.to_ne_bytes()[0];
    let value = if value == u32::from_ne_bytes([byte; 4]) { byte } else { 0 };
    cuMemsetD8_v2(to, value, count.saturating_mul(4))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, _stream: usize) -> i32 {
    cuMemsetD32_v2(to, value, count)
}

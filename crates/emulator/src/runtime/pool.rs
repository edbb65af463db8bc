//! Stream-ordered memory (`cudaMallocAsync`): each device's default pool.
//!
//! What the driver's pool keeps back is not modelled: its reserved bytes are its used bytes, so a peak of
//! `backend:cudaMallocAsync` is a lower bound, which the report says.

use std::ffi::{c_int, c_void};

use super::error::{Error, set_error};
use crate::abi::{self, put};
use crate::{machine, stub};

/// Handle of a device's default pool: a number that no other handle has.
const FIRST_POOL: usize = 0x5000_0000_0000;

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetDefaultMemPool(to: *mut usize, device: c_int) -> i32 {
    put(to, FIRST_POOL + usize::try_from(device).unwrap_or(0));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetMemPool(to: *mut usize, device: c_int) -> i32 {
    cudaDeviceGetDefaultMemPool(to, device)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolCreate(to: *mut usize, _properties: *const c_void) -> i32 {
    put(to, stub::new_handle());
    0
}

pub(crate) fn malloc_async(to: *mut *mut c_void, bytes: usize) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let Some(addr) = machine.malloc(device, bytes as u64) else {
        return set_error(Error::MemoryAllocation);
    };
    machine.note_pool_use(device, i64::try_from(bytes).unwrap_or(i64::MAX));
    put(to, addr as *mut c_void);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocAsync(to: *mut *mut c_void, bytes: usize, _stream: usize) -> i32 {
    malloc_async(to, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocFromPoolAsync(
    to: *mut *mut c_void,
    bytes: usize,
    _pool: usize,
    _stream: usize,
) -> i32 {
    malloc_async(to, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeAsync(addr: *mut c_void, _stream: usize) -> i32 {
    let mut machine = machine::lock();
    let place = machine.place_of(addr as u64);
    if !addr.is_null() && !machine.free(addr as u64) {
        return set_error(Error::InvalidValue);
    }
    if let Some(place) = place {
        machine.note_pool_use(place.device, -i64::try_from(place.bytes).unwrap_or(0));
    }
    0
}

/// `cudaMemPoolAttr`: reserved (now 5, peak 6) and used (now 7, peak 8) bytes.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolGetAttribute(pool: usize, attribute: c_int, to: *mut c_void) -> i32 {
    let machine = machine::lock();
    let card = pool.checked_sub(FIRST_POOL).and_then(|i| machine.devices.get(i));
    let (used, peak) = card.map_or((0, 0), |d| (d.pool_used, d.pool_peak));
    match attribute {
        5 | 7 => put(to.cast::<u64>(), used),
        6 | 8 => put(to.cast::<u64>(), peak),
        4 => put(to.cast::<u64>(), u64::MAX),
        _ => put(to.cast::<c_int>(), 1),
    }
    0
}

/// Only a reset of a peak has an effect.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolSetAttribute(pool: usize, attribute: c_int, value: *mut c_void) -> i32 {
    let mut machine = machine::lock();
    if matches!(attribute, 6 | 8)
        && abi::get(value.cast::<u64>()) == Some(0)
        && let Some(card) = pool.checked_sub(FIRST_POOL).and_then(|i| machine.devices.get_mut(i))
    {
        card.pool_peak = card.pool_used;
    }
    0
}

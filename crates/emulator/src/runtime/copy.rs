//! Copies and fills. Small ones are real; large ones would only commit memory for values that nobody knows.

use std::ffi::{c_int, c_uint, c_void};

use super::error::{Error, set_error};
use crate::abi;
use crate::machine::{self, SMALL_COPY, is_device_address};

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
    OnDevice,
    OnHost,
}

impl Direction {
    /// By the addresses, whatever the caller said (`cudaMemcpyDefault`).
    pub(crate) fn of(to: *const c_void, from: *const c_void) -> Self {
        match (is_device_address(to as u64), is_device_address(from as u64)) {
            (true, true) => Self::OnDevice,
            (true, false) => Self::ToDevice,
            (false, true) => Self::ToHost,
            (false, false) => Self::OnHost,
        }
    }
}

/// Virtual time of a copy: a start-up and 25 GB/s over the bus, or 2 TB/s inside the card.
fn duration_ns(direction: Direction, bytes: usize) -> u64 {
    let per_microsecond = if direction == Direction::OnDevice { 2_000_000 } else { 25_000 };
    3_000 + (bytes as u64).saturating_mul(1000) / per_microsecond
}

/// A copy of `bytes` bytes.
pub(crate) fn transfer(to: *mut c_void, from: *const c_void, bytes: usize) {
    let direction = Direction::of(to, from);
    machine::lock().work(duration_ns(direction, bytes));
    match direction {
        Direction::OnHost => abi::copy(to, from, bytes),
        Direction::ToDevice | Direction::OnDevice if bytes <= SMALL_COPY => {
            abi::copy(to, from, bytes);
            let carried = &mut machine::lock().carried;
            if direction == Direction::ToDevice || carried.holds(from as u64, bytes as u64) {
                carried.written(to as u64, bytes as u64);
            } else {
                carried.lost(to as u64, bytes as u64);
            }
        }
        // What was there is not there any more.
        Direction::ToDevice | Direction::OnDevice => {
            machine::lock().carried.lost(to as u64, bytes as u64);
            machine::forget(to as u64, bytes as u64);
        }
        Direction::ToHost if bytes <= SMALL_COPY => {
            let found = abi::bytes(from, bytes);
            let mut machine = machine::lock();
            let certain = machine.carried.holds(from as u64, bytes as u64);
            let answer = machine.values.answer(from as u64, found, certain);
            drop(machine);
            abi::put_bytes(to, &answer);
        }
        Direction::ToHost => {
            machine::lock().values.large += 1;
            machine::clear_host(to as u64, bytes as u64);
        }
    }
}

/// A fill of `bytes` bytes with one value.
pub(crate) fn fill(to: *mut c_void, value: u8, bytes: usize) {
    machine::lock().work(duration_ns(Direction::OnDevice, bytes));
    if bytes <= SMALL_COPY || !is_device_address(to as u64) {
        abi::fill(to, value, bytes);
        if is_device_address(to as u64) {
            machine::lock().carried.written(to as u64, bytes as u64);
        }
    } else {
        machine::lock().carried.lost(to as u64, bytes as u64);
        // Large fills are zeros in all but name; zeros cost nothing.
        machine::forget(to as u64, bytes as u64);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int) -> i32 {
    transfer(to, from, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    _kind: c_int,
    _stream: usize,
) -> i32 {
    transfer(to, from, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    _to_device: c_int,
    from: *const c_void,
    _from_device: c_int,
    bytes: usize,
    _stream: usize,
) -> i32 {
    transfer(to, from, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: c_int,
    _stream: usize,
) -> i32 {
    if width.saturating_mul(height) > SMALL_COPY {
        // One large copy, whatever its shape.
        if Direction::of(to, from) == Direction::ToHost {
            machine::lock().values.large += 1;
            for row in 0..height {
                machine::clear_host(
                    (to as u64).wrapping_add((row * to_pitch) as u64),
                    width as u64,
                );
            }
        }
        return 0;
    }
    for row in 0..height {
        let (to, from) =
            (to.wrapping_byte_add(row * to_pitch), from.wrapping_byte_add(row * from_pitch));
        transfer(to, from, width);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    _kind: c_int,
) -> i32 {
    let address = machine::lock().variable(symbol as usize);
    match address {
        Some(addr) => {
            transfer((addr as *mut c_void).wrapping_byte_add(offset), from, bytes);
            0
        }
        None => set_error(Error::InvalidValue),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset(to: *mut c_void, value: c_int, bytes: usize) -> i32 {
    fill(to, value as u8, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, _stream: usize) -> i32 {
    fill(to, value as u8, bytes);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyBatchAsync(
    to: *const *mut c_void,
    from: *const *const c_void,
    sizes: *const usize,
    count: usize,
    _attributes: *mut c_void,
    _indices: *mut usize,
    _attribute_count: usize,
    _stream: usize,
) -> i32 {
    for i in 0..count {
        let parts = (
            abi::get(to.wrapping_add(i)),
            abi::get(from.wrapping_add(i)),
            abi::get(sizes.wrapping_add(i)),
        );
        if let (Some(to), Some(from), Some(bytes)) = parts {
            transfer(to, from, bytes);
        }
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolAddress(to: *mut *mut c_void, symbol: *const c_void) -> i32 {
    let address = machine::lock().variable(symbol as usize);
    if let Some(addr) = address {
        abi::put(to, addr as *mut c_void);
        return 0;
    }
    set_error(Error::InvalidValue)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolSize(size: *mut usize, symbol: *const c_void) -> i32 {
    let bytes = machine::lock().variables.get(&(symbol as usize)).map_or(0, |v| v.size);
    abi::put(size, bytes);
    0
}

/// Present for its flags only.
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceFlags(flags: *mut c_uint) -> i32 {
    abi::put(flags, 0);
    0
}

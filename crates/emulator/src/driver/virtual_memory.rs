//! Virtual memory management: reservations, physical handles, mappings.

use std::ffi::{c_int, c_void};

use crate::abi::{self, put};
use crate::machine::{self, GRANULARITY, Identity, Shared};
use crate::runtime::Error;

const INVALID_VALUE: i32 = Error::InvalidValue as i32;

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AllocationProp {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
    win32: *const c_void,
    flags: [u8; 8],
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    to: *mut usize,
    _prop: *const c_void,
    _option: c_int,
) -> i32 {
    put(to, GRANULARITY as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    to: *mut u64,
    bytes: usize,
    _alignment: usize,
    _wanted: u64,
    _flags: u64,
) -> i32 {
    match machine::lock().physical.reserve(bytes as u64) {
        Some(addr) => {
            put(to, addr);
            0
        }
        None => Error::MemoryAllocation as i32,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(addr: u64, bytes: usize) -> i32 {
    if machine::lock().physical.free_reservation(addr, bytes as u64) { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(to: *mut u64, bytes: usize, prop: *const c_void, _flags: u64) -> i32 {
    let bytes = bytes as u64;
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return INVALID_VALUE;
    }
    let Some(prop) = abi::get(prop.cast::<AllocationProp>()) else { return INVALID_VALUE };
    let device = usize::try_from(prop.location).unwrap_or(0);
    let mut machine = machine::lock();
    // Host memory (location kinds 2 and up) takes nothing of the card.
    const ON_DEVICE: c_int = 1;
    let size = if prop.location_kind == ON_DEVICE { bytes } else { 0 };
    if prop.handle_types & !POSIX_DESCRIPTOR != 0 {
        // As on a machine without a fabric manager.
        return Error::NotSupported as i32;
    }
    if !machine.take_physical(device, size) {
        return Error::MemoryAllocation as i32;
    }
    put(to, machine.physical.create(device, size, prop.handle_types));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> i32 {
    let mut machine = machine::lock();
    match machine.physical.release(handle) {
        Ok(Some(free)) => machine.return_physical(free),
        Ok(None) => {}
        Err(()) => return INVALID_VALUE,
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(addr: u64, bytes: usize, _offset: usize, handle: u64, _flags: u64) -> i32 {
    let mut machine = machine::lock();
    machine.calls.map += 1;
    if machine.physical.map(addr, bytes as u64, handle) { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(addr: u64, bytes: usize) -> i32 {
    let mut machine = machine::lock();
    machine.calls.unmap += 1;
    let Some(free) = machine.physical.unmap(addr, bytes as u64) else { return INVALID_VALUE };
    for info in free {
        machine.return_physical(info);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(_addr: u64, _bytes: usize, _access: *const c_void, _n: usize) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(to: *mut u64, addr: *mut c_void) -> i32 {
    match machine::lock().physical.retain(addr as u64) {
        Some(handle) => {
            put(to, handle);
            0
        }
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(to: *mut c_void, handle: u64) -> i32 {
    let Some(info) = machine::lock().physical.info(handle) else { return INVALID_VALUE };
    put(
        to.cast(),
        AllocationProp {
            kind: 1,
            handle_types: info.handle_types,
            location_kind: 1,
            location: info.device as c_int,
            win32: std::ptr::null(),
            flags: [0; 8],
        },
    );
    0
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the kind of handle that processes of one machine exchange.
const POSIX_DESCRIPTOR: c_int = 1;

/// A descriptor by which another process finds this memory; the caller closes it.
#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(
    to: *mut c_void,
    handle: u64,
    kind: c_int,
    _flags: u64,
) -> i32 {
    if kind != POSIX_DESCRIPTOR {
        return Error::NotSupported as i32;
    }
    let mut machine = machine::lock();
    let Some(info) = machine.physical.info(handle) else { return INVALID_VALUE };
    if info.handle_types & POSIX_DESCRIPTOR == 0 {
        return INVALID_VALUE;
    }
    let identity = info.identity.unwrap_or_else(Identity::new);
    machine.physical.name(handle, identity);
    let shared = Shared { identity, device: info.device as u64, bytes: info.bytes };
    match shared.export() {
        Ok(fd) => {
            put(to.cast::<c_int>(), fd);
            0
        }
        Err(error) => {
            machine.notes.push(format!("memory cannot be handed to another process: {error}"));
            Error::MemoryAllocation as i32
        }
    }
}

/// The memory of a descriptor, which is passed as a number in the place of a pointer and stays open.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(
    to: *mut u64,
    descriptor: *mut c_void,
    kind: c_int,
) -> i32 {
    if kind != POSIX_DESCRIPTOR {
        return Error::NotSupported as i32;
    }
    let fd = c_int::try_from(descriptor as usize).ok();
    let Some(shared) = fd.and_then(Shared::import) else { return INVALID_VALUE };
    let mut machine = machine::lock();
    let device = usize::try_from(shared.device).unwrap_or(usize::MAX);
    if device >= machine.devices.len() {
        return INVALID_VALUE;
    }
    put(to, machine.physical.import(shared.identity, device, POSIX_DESCRIPTOR));
    0
}

/// Multicast objects need NVLink hardware.
#[unsafe(no_mangle)]
extern "C" fn cuMulticastCreate(_to: *mut u64, _prop: *const c_void) -> i32 {
    Error::NotSupported as i32
}

//! Device and pinned host memory.

use std::ffi::{c_int, c_uint, c_void};

use super::error::{Error, set_error, status};
use crate::abi::put;
use crate::machine::{self, Step};

fn malloc(to: *mut *mut c_void, bytes: usize) -> i32 {
    let device = machine::current_device();
    if bytes == 0 {
        put(to, std::ptr::null_mut());
        return 0;
    }
    let made = machine::lock().malloc(device, bytes as u64);
    match made {
        Some(addr) => {
            put(to, addr as *mut c_void);
            0
        }
        None => set_error(Error::MemoryAllocation),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaMalloc(to: *mut *mut c_void, bytes: usize) -> i32 {
    malloc(to, bytes)
}

/// Managed memory counts as device memory: what it takes at most.
#[unsafe(no_mangle)]
extern "C" fn cudaMallocManaged(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    malloc(to, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocPitch(
    to: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> i32 {
    let row = width.next_multiple_of(512);
    put(pitch, row);
    malloc(to, row.saturating_mul(height))
}

#[unsafe(no_mangle)]
extern "C" fn cudaFree(addr: *mut c_void) -> i32 {
    let mut machine = machine::lock();
    if addr.is_null() {
        // The usual way to make a context.
        machine.reach(machine::current_device(), Step::Init);
        return 0;
    }
    status(machine.free(addr as u64), Error::InvalidValue)
}

/// Page-locked host memory is ordinary memory here, zeroed and aligned to pages, that is remembered.
pub(crate) fn host_alloc(to: *mut *mut c_void, bytes: usize) -> bool {
    let mut at = std::ptr::null_mut();
    // SAFETY: `at` is a valid place for the result; the alignment is a power of two.
    if unsafe { libc::posix_memalign(&mut at, 4096, bytes.max(1)) } != 0 {
        return false;
    }
    machine::lock().pinned.insert(at as usize, bytes.max(1));
    put(to, at);
    true
}

pub(crate) fn host_free(addr: *mut c_void) -> bool {
    let known = machine::lock().pinned.remove(&(addr as usize)).is_some();
    if known {
        // SAFETY: it came from `posix_memalign` in `host_alloc` and is freed once.
        unsafe { libc::free(addr) };
    }
    known || addr.is_null()
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    status(host_alloc(to, bytes), Error::MemoryAllocation)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocHost(to: *mut *mut c_void, bytes: usize) -> i32 {
    status(host_alloc(to, bytes), Error::MemoryAllocation)
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeHost(addr: *mut c_void) -> i32 {
    status(host_free(addr), Error::InvalidValue)
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostRegister(addr: *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    machine::lock().pinned.insert(addr as usize, bytes.max(1));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostUnregister(addr: *mut c_void) -> i32 {
    status(machine::lock().pinned.remove(&(addr as usize)).is_some(), Error::InvalidValue)
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostGetDevicePointer(to: *mut *mut c_void, host: *mut c_void, _: c_uint) -> i32 {
    put(to, host);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostGetFlags(flags: *mut c_uint, _host: *mut c_void) -> i32 {
    put(flags, 0);
    0
}

/// `cudaPointerAttributes`; CUDA 13's has 64 reserved bytes behind it.
#[repr(C)]
struct PointerAttributes {
    /// 0 unregistered, 1 host, 2 device.
    kind: c_int,
    device: c_int,
    device_pointer: *const c_void,
    host_pointer: *const c_void,
}

#[unsafe(no_mangle)]
extern "C" fn cudaPointerGetAttributes(to: *mut c_void, addr: *const c_void) -> i32 {
    let machine = machine::lock();
    let place = machine.place_of(addr as u64);
    let pinned = machine.is_pinned(addr as usize);
    let kind = if place.is_some() { 2 } else { c_int::from(pinned) };
    let device = place.map_or(if pinned { 0 } else { -2 }, |p| p.device as c_int);
    let (mut device_pointer, mut host_pointer) = (std::ptr::null(), addr);
    if kind > 0 {
        device_pointer = addr;
    }
    if kind == 2 {
        host_pointer = std::ptr::null();
    }
    put(to.cast(), PointerAttributes { kind, device, device_pointer, host_pointer });
    0
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`: 64 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle {
    pub(crate) words: [u64; 8],
}

/// A handle for other processes: the address, which is the same memory only inside this one.
#[unsafe(no_mangle)]
extern "C" fn cudaIpcGetMemHandle(handle: *mut IpcHandle, addr: *mut c_void) -> i32 {
    let Some(place) = machine::lock().place_of(addr as u64) else {
        return set_error(Error::InvalidValue);
    };
    put(
        handle,
        IpcHandle { words: [place.start, place.bytes, place.device as u64, 0, 0, 0, 0, 0] },
    );
    0
}

/// Memory of another process is stood for by new address space that costs this process nothing.
#[unsafe(no_mangle)]
extern "C" fn cudaIpcOpenMemHandle(to: *mut *mut c_void, handle: IpcHandle, _flags: c_uint) -> i32 {
    let opened = machine::lock().physical.reserve(handle.words[1].next_multiple_of(2 << 20));
    if let Some(addr) = opened {
        put(to, addr as *mut c_void);
    }
    status(opened.is_some(), Error::InvalidValue)
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcCloseMemHandle(_addr: *mut c_void) -> i32 {
    0
}

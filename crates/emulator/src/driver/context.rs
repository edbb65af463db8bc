//! Initialisation, devices and contexts. A device's primary context is its only one.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint};

use crate::abi::{self, put};
use crate::machine::{self, Step};
use crate::runtime::{self, Error};

/// Handle of a device's primary context.
const FIRST_CONTEXT: usize = 0x5100_0000_0000;

fn context_of(device: usize) -> usize {
    FIRST_CONTEXT + device * 64
}

fn device_of(context: usize) -> Option<usize> {
    Some(context.checked_sub(FIRST_CONTEXT)? / 64).filter(|d| *d < machine::lock().devices.len())
}

fn exists(device: c_int) -> Option<usize> {
    usize::try_from(device).ok().filter(|d| *d < machine::lock().devices.len())
}

const INVALID_DEVICE: i32 = Error::InvalidDevice as i32;
/// `CUDA_ERROR_INVALID_CONTEXT`.
const INVALID_CONTEXT: i32 = 201;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> i32 {
    machine::mappings::initialise();
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> i32 {
    put(version, 13_000);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> i32 {
    if exists(ordinal).is_none() {
        return INVALID_DEVICE;
    }
    put(device, ordinal);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> i32 {
    put(count, machine::lock().devices.len() as c_int);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(to: *mut c_char, len: c_int, _device: c_int) -> i32 {
    abi::put_text(to, usize::try_from(len).unwrap_or(0), &machine::lock().config.profile.name);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(to: *mut [u8; 16], device: c_int) -> i32 {
    put(to, machine::uuid(usize::try_from(device).unwrap_or(0)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int) -> i32 {
    cuDeviceGetUuid(to, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> i32 {
    let Some(index) = exists(device) else { return INVALID_DEVICE };
    put(bytes, machine::lock().devices[index].total as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> i32 {
    if exists(device).is_none() {
        return INVALID_DEVICE;
    }
    put(value, machine::lock().attribute(u32::try_from(attribute).unwrap_or(0)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, _: c_int) -> i32 {
    let machine = machine::lock();
    put(major, machine.attribute(75));
    put(minor, machine.attribute(76));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, len: c_int, device: c_int) -> i32 {
    let index = usize::try_from(device).unwrap_or(0);
    abi::put_text(to, usize::try_from(len).unwrap_or(0), &runtime::pci_bus_id(index)[4..]);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> i32 {
    let Some(index) = exists(device) else { return INVALID_DEVICE };
    machine::lock().reach(index, Step::Init);
    put(context, context_of(index));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, on: *mut c_int) -> i32 {
    let Some(index) = exists(device) else { return INVALID_DEVICE };
    put(flags, 0);
    put(on, c_int::from(machine::lock().devices[index].active));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: *mut usize) -> i32 {
    let device = machine::current_device();
    let active = machine::lock().devices.get(device).is_some_and(|d| d.active);
    put(context, if active { context_of(device) } else { 0 });
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> i32 {
    if let Some(device) = device_of(context) {
        machine::set_current_device(device);
        machine::lock().reach(device, Step::Init);
    }
    0
}

thread_local! {
    /// Devices that were current before the contexts that the thread has pushed.
    static BELOW: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent(context: usize) -> i32 {
    if device_of(context).is_none() {
        return INVALID_CONTEXT;
    }
    BELOW.with_borrow_mut(|below| below.push(machine::current_device()));
    cuCtxSetCurrent(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> i32 {
    cuCtxPushCurrent(context)
}

/// Gives the context and makes the one below it current again. What was made current without a push stays.
#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent(context: *mut usize) -> i32 {
    put(context, context_of(machine::current_device()));
    if let Some(device) = BELOW.with_borrow_mut(Vec::pop) {
        machine::set_current_device(device);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> i32 {
    cuCtxPopCurrent(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: *mut c_int) -> i32 {
    put(device, machine::current_device() as c_int);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(_context: usize, version: *mut c_uint) -> i32 {
    put(version, 13_000);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(_stream: usize, context: *mut usize) -> i32 {
    put(context, context_of(machine::current_device()));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx_v2(stream: usize, context: *mut usize, green: *mut usize) -> i32 {
    put(green, 0);
    cuStreamGetCtx(stream, context)
}

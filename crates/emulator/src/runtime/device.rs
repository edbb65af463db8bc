//! Devices: their number, properties, attributes, and what is free on them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::error::{Error, set_error, status};
use crate::abi::{self, put};
use crate::machine::{self, Step};

/// Driver version that is shown: new enough for every runtime, `1000 * major + 10 * minor`.
pub(crate) const DRIVER_VERSION: i32 = 13_000;

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> i32 {
    machine::mappings::initialise();
    put(count, machine::lock().devices.len() as c_int);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDevice(device: *mut c_int) -> i32 {
    put(device, machine::current_device() as c_int);
    0
}

/// The index of a device that exists.
pub(crate) fn known(machine: &machine::Machine, device: c_int) -> Option<usize> {
    usize::try_from(device).ok().filter(|d| *d < machine.devices.len())
}

/// A program for several cards, on too few: how to give it more.
fn note_missing(machine: &mut machine::Machine, device: c_int) {
    let count = machine.devices.len();
    let there = if count == 1 { "is 1".to_owned() } else { format!("are {count}") };
    if device >= 0 && count > 0 {
        machine.note(format!(
            "the program asked for device {device}, and there {there}: give it more with --gpus {}",
            i64::from(device) + 1
        ));
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: c_int) -> i32 {
    let mut machine = machine::lock();
    let Some(index) = known(&machine, device) else {
        note_missing(&mut machine, device);
        return set_error(Error::InvalidDevice);
    };
    machine::set_current_device(index);
    machine.reach(index, Step::Init);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> i32 {
    let mut machine = machine::lock();
    let index = known(&machine, device);
    if let Some(index) = index {
        machine.reach(index, Step::Init);
    }
    status(index.is_some(), Error::InvalidDevice)
}

fn properties(prop: *mut c_void, device: c_int, major: u32) -> i32 {
    let machine = machine::lock();
    let Some(index) = known(&machine, device) else { return set_error(Error::InvalidDevice) };
    abi::put_bytes(prop, &machine.device_prop(index, major));
    0
}

/// CUDA 13's structure (CUDA 12 calls `cudaGetDeviceProperties_v2`).
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties(prop: *mut c_void, device: c_int) -> i32 {
    properties(prop, device, 13)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties_v2(prop: *mut c_void, device: c_int) -> i32 {
    properties(prop, device, 12)
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> i32 {
    let machine = machine::lock();
    if known(&machine, device).is_none() {
        return set_error(Error::InvalidDevice);
    }
    let number = u32::try_from(attribute).unwrap_or(0);
    if !machine.has_attribute(number) {
        return set_error(Error::InvalidValue);
    }
    put(value, machine.attribute(number));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    machine.reach(device, Step::Init);
    let Some(card) = machine.devices.get(device) else { return set_error(Error::InvalidDevice) };
    put(free, card.free_bytes() as usize);
    put(total, card.total as usize);
    0
}

/// PCI address of a device, as text.
pub(crate) fn pci_bus_id(index: usize) -> String {
    let (bus, device) = machine::pci_address(index);
    format!("00000000:{bus:02X}:{device:02X}.0")
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetPCIBusId(to: *mut c_char, len: c_int, device: c_int) -> i32 {
    let machine = machine::lock();
    let Some(index) = known(&machine, device) else { return set_error(Error::InvalidDevice) };
    abi::put_text(to, usize::try_from(len).unwrap_or(0), &pci_bus_id(index)[4..]);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) -> i32 {
    let (machine, id) = (machine::lock(), abi::text(id).to_uppercase());
    let found = (0..machine.devices.len()).find(|i| pci_bus_id(*i).ends_with(&id));
    if let Some(index) = found {
        put(device, index as c_int);
    }
    status(found.is_some(), Error::InvalidDevice)
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> i32 {
    put(can, c_int::from(device != peer));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> i32 {
    put(least, 0);
    // As a CUDA 13 driver says on an H200.
    put(greatest, -5);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> i32 {
    put(version, DRIVER_VERSION);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> i32 {
    put(version, machine::lock().cuda_version());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSynchronize() -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetLimit(value: *mut usize, _limit: c_int) -> i32 {
    put(value, 0);
    0
}

//! Memory for other devices and other processes.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;

use super::{put, with};
use crate::table::{DRIVER, INVALID, OK, UNKNOWN_ADDRESS, UNSUPPORTED};
use crate::{engine, message};

/// The device, and each handle's descriptor and bytes.
type Opened = (i32, Vec<(i32, u64)>);

/// What was mapped of other processes: by address.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

/// Descriptors of shared handles: one each, open as long as this process lives, as the handles stay where they are.
static EXPORTED: Mutex<BTreeMap<(i32, u64), i32>> = Mutex::new(BTreeMap::new());

pub(super) extern "C" fn enable_peer(device: i32, peer: i32) -> c_int {
    with(device, |heap| {
        let mapped = heap.mappings();
        match heap.device_mut().add_peer(peer, &mapped) {
            Ok(()) => OK,
            Err(error) => {
                message::set(&error.to_string());
                DRIVER
            }
        }
    })
}

pub(super) extern "C" fn share(
    address: u64,
    start: *mut u64,
    offset: *mut u64,
    fds: *mut i32,
    sizes: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    let Some(device) = engine::owner(address) else { return UNKNOWN_ADDRESS };
    with(device, |heap| {
        let Some((base, handles)) = heap.share(address) else { return UNKNOWN_ADDRESS };
        put(count, handles.len());
        if handles.len() > capacity {
            message::set(&format!(
                "{} handles lie under this block; there is room for {capacity}",
                handles.len()
            ));
            return INVALID;
        }
        for (at, (handle, bytes)) in handles.iter().enumerate() {
            let mut exported = engine::lock(&EXPORTED);
            let known = exported.get(&(device, handle.0)).copied();
            match known.map_or_else(|| heap.device().export(*handle), Ok) {
                Ok(fd) => {
                    exported.insert((device, handle.0), fd);
                    // SAFETY: both arrays have room for `capacity` entries, and `at` is below it.
                    unsafe {
                        fds.add(at).write(fd);
                        sizes.add(at).write(*bytes);
                    }
                }
                Err(error) => {
                    message::set(&error.to_string());
                    return UNSUPPORTED;
                }
            }
        }
        put(start, base);
        put(offset, address - base);
        OK
    })
}

pub(super) extern "C" fn open_shared(
    device: i32,
    fds: *const i32,
    sizes: *const u64,
    count: usize,
    address: *mut u64,
) -> c_int {
    if count == 0 || fds.is_null() || sizes.is_null() {
        message::set("no handles are given");
        return INVALID;
    }
    // SAFETY: both arrays have `count` entries.
    let parts: Vec<(i32, u64)> =
        (0..count).map(|i| unsafe { (*fds.add(i), *sizes.add(i)) }).collect();
    with(device, |heap| match heap.device_mut().import(&parts) {
        Ok(base) => {
            engine::lock(&OPENED).insert(base, (device, parts.clone()));
            put(address, base);
            OK
        }
        Err(error) => {
            message::set(&error.to_string());
            DRIVER
        }
    })
}

pub(super) extern "C" fn close_shared(address: u64) -> c_int {
    let Some((device, parts)) = engine::lock(&OPENED).remove(&address) else {
        return UNKNOWN_ADDRESS;
    };
    with(device, |heap| {
        heap.device_mut().unimport(address, u64::MAX, &parts);
        OK
    })
}

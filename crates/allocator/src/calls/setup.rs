//! Start, settings, limits.

use std::ffi::{CStr, c_char, c_int};

use vramwise_arena::{Device, Params};

use super::with;
use crate::table::{Hooks, INVALID, NOT_READY, OK};
use crate::{engine, message};

pub(super) extern "C" fn init(devices: i32) -> c_int {
    match engine::start(devices) {
        Ok(()) => OK,
        Err(why) => {
            message::set(&why);
            NOT_READY
        }
    }
}

pub(super) extern "C" fn set_settings(device: i32, text: *const c_char) -> c_int {
    if text.is_null() {
        message::set("no text");
        return INVALID;
    }
    // SAFETY: not null, so a text that ends with 0, as the header says.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match engine::set_settings(device, &text) {
        Ok(note) => {
            message::set(&note);
            OK
        }
        Err(why) => {
            message::set(&why);
            INVALID
        }
    }
}

pub(super) extern "C" fn settings(device: i32, to: *mut c_char, capacity: usize) -> usize {
    let text = engine::settings(device);
    if !to.is_null() && capacity > 0 {
        let bytes = text.len().min(capacity - 1);
        // SAFETY: the caller has room for `capacity` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), bytes);
            to.add(bytes).write(0);
        }
    }
    text.len()
}

pub(super) extern "C" fn set_hooks(hooks: *const Hooks) {
    // SAFETY: null or the caller's structure, as the header says.
    engine::set_hooks(unsafe { hooks.as_ref() }.copied());
}

pub(super) extern "C" fn set_memory_fraction(device: i32, fraction: f64) -> c_int {
    if !(0.0..=1.0).contains(&fraction) {
        message::set(&format!("the fraction is {fraction}; it must be from 0 to 1"));
        return INVALID;
    }
    with(device, |heap| {
        let bytes = (heap.device().total() as f64 * fraction) as u64;
        let params = Params { limit: (fraction < 1.0).then_some(bytes), ..*heap.params() };
        heap.set_params(params);
        OK
    })
}

pub(super) extern "C" fn memory_fraction(device: i32) -> f64 {
    let mut fraction = 1.0;
    with(device, |heap| {
        if let Some(limit) = heap.params().limit {
            fraction = limit as f64 / heap.device().total().max(1) as f64;
        }
        OK
    });
    fraction
}

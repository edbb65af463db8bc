//! CUPTI: there is nothing to profile; the profiler is told so and goes on without a GPU's part.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::put;

/// `CUPTI_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 27;

#[unsafe(no_mangle)]
extern "C" fn cuptiGetVersion(version: *mut c_uint) -> i32 {
    put(version, 13_000);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe(_to: *mut usize, _callback: *const c_void, _data: *mut c_void) -> i32 {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnable(_kind: c_int) -> i32 {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterCallbacks(_request: *const c_void, _done: *const c_void) -> i32 {
    NOT_SUPPORTED
}

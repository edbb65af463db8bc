//! Status codes and the calling thread's last error.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

/// `cudaError_t`, as far as it is used here (the driver's `CUresult` has the same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Error {
    Success = 0,
    InvalidValue = 1,
    MemoryAllocation = 2,
    InvalidDevice = 101,
    InvalidResourceHandle = 400,
    NotFound = 500,
    NotSupported = 801,
    StreamCaptureUnsupported = 900,
    StreamCaptureInvalidated = 901,
}

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Remembers an error for `cudaGetLastError`; gives its code.
pub(crate) fn set_error(error: Error) -> i32 {
    if error != Error::Success {
        LAST.set(error as i32);
    }
    error as i32
}

/// The result of a call.
pub(crate) fn status(done: bool, otherwise: Error) -> i32 {
    set_error(if done { Error::Success } else { otherwise })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> i32 {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST.get()
}

/// Name and description of a code.
pub(crate) fn describe(code: i32) -> (&'static CStr, &'static CStr) {
    match code {
        0 => (c"cudaSuccess", c"no error"),
        1 => (c"cudaErrorInvalidValue", c"invalid argument"),
        2 => (c"cudaErrorMemoryAllocation", c"out of memory"),
        98 => (c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
        101 => (c"cudaErrorInvalidDevice", c"invalid device ordinal"),
        209 => (
            c"cudaErrorNoKernelImageForDevice",
            c"no kernel image is available for execution on the device",
        ),
        400 => (c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
        500 => (c"cudaErrorSymbolNotFound", c"named symbol not found"),
        801 => (c"cudaErrorNotSupported", c"operation not supported"),
        900 => (
            c"cudaErrorStreamCaptureUnsupported",
            c"operation not permitted when stream is capturing",
        ),
        901 => (
            c"cudaErrorStreamCaptureInvalidated",
            c"operation failed due to a previous error during capture",
        ),
        _ => (c"cudaErrorUnknown", c"unknown error (emulated device)"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    describe(code).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    describe(code).1.as_ptr()
}

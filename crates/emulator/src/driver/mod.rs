//! The CUDA driver API (`cuda.h`): what PyTorch, Triton and cuDNN look up by name.

mod context;
mod library;
mod memory;
mod queue;
mod virtual_memory;

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::abi::{self, put};
use crate::runtime::Error;

/// The address of one of our driver functions: the newest version of a name, as `cuGetProcAddress` gives it.
pub(crate) fn find(name: &str) -> Option<*const c_void> {
    if !name.starts_with("cu") {
        return None;
    }
    ["_v2", ""].iter().find_map(|suffix| {
        let name = CString::new(format!("{name}{suffix}")).ok()?;
        ours(&name)
    })
}

fn ours(name: &CStr) -> Option<*const c_void> {
    // SAFETY: looks a name up; this object is preloaded, so its own definition is the first.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(
    name: *const c_char,
    to: *mut *const c_void,
    _version: c_int,
    _flags: u64,
) -> i32 {
    let name = abi::text(name);
    let found = find(&name);
    put(to, found.unwrap_or(std::ptr::null()));
    if found.is_none() {
        crate::machine::lock().note_unknown(name);
        return Error::NotFound as i32;
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *const c_void,
    version: c_int,
    flags: u64,
    result: *mut c_int,
) -> i32 {
    let status = cuGetProcAddress(name, to, version, flags);
    put(result, c_int::from(status != 0));
    status
}

/// Private tables are no documented interface: there are none here.
#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(to: *mut *const c_void, _id: *const c_void) -> i32 {
    put(to, std::ptr::null());
    Error::NotFound as i32
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, to: *mut *const c_char) -> i32 {
    put(to, describe(code).1.as_ptr());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, to: *mut *const c_char) -> i32 {
    put(to, describe(code).0.as_ptr());
    0
}

fn describe(code: c_int) -> (&'static CStr, &'static CStr) {
    match code {
        0 => (c"CUDA_SUCCESS", c"no error"),
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error (emulated device)"),
    }
}

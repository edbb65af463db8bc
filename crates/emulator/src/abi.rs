//! The few raw accesses that a C interface needs, each at one place.

use std::ffi::{CStr, c_char, c_void};

use crate::machine::is_backed;

/// Writes through a pointer that C gave for a result; a null pointer is left alone.
pub(crate) fn put<T>(to: *mut T, value: T) {
    if !to.is_null() && is_backed(to as u64) {
        // SAFETY: the header promises a valid pointer for one T; callers of C interfaces may give
        // unaligned ones, which `write_unaligned` allows.
        unsafe { to.write_unaligned(value) };
    }
}

/// Reads what C points to; `None` for null.
pub(crate) fn get<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: the header promises a valid pointer for one T where it is not null.
    (!from.is_null()).then(|| unsafe { from.read_unaligned() })
}

/// A C string as text; empty for null.
pub(crate) fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the header promises a string that ends with a zero byte.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// Copies text, with its closing zero, into a buffer of `len` bytes, cut where it does not fit.
pub(crate) fn put_text(to: *mut c_char, len: usize, value: &str) {
    if to.is_null() || len == 0 {
        return;
    }
    let bytes = &value.as_bytes()[..value.len().min(len - 1)];
    // SAFETY: the caller owns `len` bytes at `to` by the header's contract, and less than that is written.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
        to.add(bytes.len()).write(0);
    }
}

/// Copies bytes out of Rust.
pub(crate) fn put_bytes(to: *mut c_void, bytes: &[u8]) {
    if !to.is_null() {
        // SAFETY: the header promises room for a value of this size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    }
}

/// Copies memory that may overlap, as `cudaMemcpy` with host or (host-backed) device addresses does.
pub(crate) fn copy(to: *mut c_void, from: *const c_void, bytes: usize) {
    if !is_backed(from as u64) {
        fill(to, 0, bytes);
    } else if !to.is_null() && !from.is_null() && is_backed(to as u64) {
        // SAFETY: both ranges are the caller's to name; device ranges are mapped for reading and writing.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    }
}

/// Fills memory.
pub(crate) fn fill(to: *mut c_void, value: u8, bytes: usize) {
    if !to.is_null() && is_backed(to as u64) {
        // SAFETY: as for `copy`.
        unsafe { std::ptr::write_bytes(to.cast::<u8>(), value, bytes) };
    }
}

/// `bytes` bytes at an address of the caller's.
pub(crate) fn bytes(from: *const c_void, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    copy(out.as_mut_ptr().cast(), from, bytes);
    out
}

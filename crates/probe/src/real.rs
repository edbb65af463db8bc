//! The functions of the real library.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// `cudnnStatus_t` for a library that has no such function: `CUDNN_STATUS_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: i32 = 3000;

/// Address of a function of the cuDNN that the process has loaded. `None` if there is none.
///
/// The next definition in the global order comes first: that is cuDNN where PyTorch loads it for everybody, or what
/// else stands before it. Where PyTorch loads it for itself, the library is asked for by its name, which finds the one
/// that is there.
pub(crate) fn address(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a terminated name; RTLD_NEXT needs no handle.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    // SAFETY: a constant, terminated name; the library stays loaded, because the handle is never closed.
    let library = *LIBRARY.get_or_init(|| unsafe {
        let found = libc::dlopen(c"libcudnn.so.9".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let found = if found.is_null() {
            libc::dlopen(c"libcudnn.so.9".as_ptr(), libc::RTLD_LAZY)
        } else {
            found
        };
        found as usize
    });
    if library == 0 {
        return None;
    }
    // SAFETY: the handle is one that dlopen gave, the name is terminated.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls a function of the real library by name; its arguments must have exactly the types of the header.
macro_rules! real {
    ($name:literal ( $($value:expr => $type:ty),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let found = *ADDRESS.get_or_init(|| crate::real::address($name).map_or(0, |f| f as usize));
        if found == 0 {
            crate::real::NOT_SUPPORTED
        } else {
            // SAFETY: the types are those of cuDNN's header for this name; the arguments are the caller's own.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> i32 = std::mem::transmute(found);
                function($($value),*)
            }
        }
    }};
}
pub(crate) use real;

//! The functions of the real CUDA runtime.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// `cudaErrorSharedObjectInitFailed`: what a call gives where no runtime can be found.
pub(crate) const NO_RUNTIME: i32 = 303;

/// Address of a function of the runtime that the process has loaded. `None` if there is none.
///
/// The next definition in the global order comes first; a runtime that was loaded for one library alone is asked for by
/// the names that it has had.
pub(crate) fn address(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a terminated name; RTLD_NEXT needs no handle.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let names = [c"libcudart.so.13", c"libcudart.so.12"];
        // SAFETY: constant, terminated names of what is loaded already; the handle is never closed.
        let open = |n: &CStr| unsafe {
            libc::dlopen(n.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) as usize
        };
        names.into_iter().map(open).find(|handle| *handle != 0).unwrap_or(0)
    });
    if library == 0 {
        return None;
    }
    // SAFETY: the handle is one that dlopen gave, the name is terminated.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls a function of the real runtime by name; its arguments must have exactly the types of the header.
macro_rules! runtime {
    ($name:literal ( $($value:expr => $type:ty),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let found = *ADDRESS.get_or_init(|| crate::runtime::address($name).map_or(0, |f| f as usize));
        if found == 0 {
            crate::runtime::NO_RUNTIME
        } else {
            // SAFETY: the types are those of the runtime's header for this name; the arguments are the caller's own.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> i32 = std::mem::transmute(found);
                function($($value),*)
            }
        }
    }};
}
pub(crate) use runtime;

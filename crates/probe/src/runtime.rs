//! The functions of the real CUDA runtime.

use std::ffi::CStr;
use std::sync::OnceLock;

/// `cudaErrorSharedObjectInitFailed`: what a call gives where no runtime can be found.
pub(crate) const NO_RUNTIME: i32 = 303;

/// The runtime that the process has loaded, by the names that it has had.
pub(crate) fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: constant, terminated names of what is loaded already; the handle is never closed.
        let open = |name: &CStr| unsafe {
            libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) as usize
        };
        let names = [c"libcudart.so.13", c"libcudart.so.12"];
        names.into_iter().map(open).find(|handle| *handle != 0).unwrap_or(0)
    })
}

/// Calls a function of the runtime's by name.
macro_rules! runtime {
    ($name:literal ( $($arguments:tt)* )) => {
        crate::symbols::call!(crate::runtime::library, crate::runtime::NO_RUNTIME, $name($($arguments)*))
    };
}
pub(crate) use runtime;

//! The functions of the real cuDNN.

use std::sync::OnceLock;

/// `cudnnStatus_t` for a library that has no such function: `CUDNN_STATUS_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: i32 = 3000;

/// The cuDNN that the process has loaded, or the one that its name finds.
pub(crate) fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let name = c"libcudnn.so.9";
    // SAFETY: a constant, terminated name; the library stays loaded, because the handle is never closed.
    *LIBRARY.get_or_init(|| unsafe {
        let loaded = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let found =
            if loaded.is_null() { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) } else { loaded };
        found as usize
    })
}

/// Calls a function of cuDNN's by name.
macro_rules! real {
    ($name:literal ( $($arguments:tt)* )) => {
        crate::symbols::call!(crate::real::library, crate::real::NOT_SUPPORTED, $name($($arguments)*))
    };
}
pub(crate) use real;

//! Functions of the real library, which the program has loaded below us.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// Address of a function of the cuDNN in this process, or 0.
///
/// PyTorch loads cuDNN for itself alone, so that the next definition in the global order need not be it: it is asked
/// for by the name that it is loaded under.
pub(super) fn address(name: &CStr) -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        [c"libcudnn.so.9", c"libcudnn.so.8"]
            .into_iter()
            // SAFETY: a terminated name; the library stays loaded, because the handle is never closed.
            .map(|soname| unsafe {
                libc::dlopen(soname.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
            } as usize)
            .find(|found| *found != 0)
            .unwrap_or(0)
    });
    if library == 0 {
        return 0;
    }
    // SAFETY: the handle is one that dlopen gave, the name is terminated.
    unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) as usize }
}

/// Calls a function of the real library by name; its arguments must have exactly the types of the header.
macro_rules! real {
    ($name:literal ( $($value:expr => $type:ty),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let found = *ADDRESS.get_or_init(|| crate::cudnn::real::address($name));
        if found == 0 {
            crate::cudnn::NOT_SUPPORTED
        } else {
            // SAFETY: the types are those of cuDNN's header for this name; the arguments are the caller's own.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> i32 = std::mem::transmute(found);
                function($($value),*)
            }
        }
    }};
}
pub(super) use real;

/// `cudnnGetVersion`: 91900 is 9.19.0; 0 where there is no cuDNN.
pub(super) fn version() -> usize {
    let found = address(c"cudnnGetVersion");
    if found == 0 {
        return 0;
    }
    // SAFETY: the header's type of this name.
    unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(found)() }
}

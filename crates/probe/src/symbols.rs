//! The functions that stand behind this object's own of the same names.

use std::ffi::{CStr, c_void};

/// Address of the real function of a name: the next definition in the global order, or the one of a library that was
/// loaded for one user alone, whose handle `library` gives (0 = none).
pub(crate) fn find(name: &CStr, library: fn() -> usize) -> Option<*mut c_void> {
    // SAFETY: a terminated name; RTLD_NEXT needs no handle.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    let library = library();
    if library == 0 {
        return None;
    }
    // SAFETY: the handle is one that dlopen gave and nobody closes, the name is terminated.
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls the real function of a name, or gives `$missing` where there is none; the arguments must have exactly the types
/// of the header.
macro_rules! call {
    ($library:path, $missing:expr, $name:literal ( $($value:expr => $type:ty),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let found = *ADDRESS
            .get_or_init(|| crate::symbols::find($name, $library).map_or(0, |f| f as usize));
        if found == 0 {
            $missing
        } else {
            // SAFETY: the types are those of the library's header for this name; the arguments are the caller's own.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> i32 = std::mem::transmute(found);
                function($($value),*)
            }
        }
    }};
}
pub(crate) use call;

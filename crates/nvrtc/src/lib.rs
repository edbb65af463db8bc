//! The run-time compiler's interface (`nvrtc.h`), for programs on an emulated GPU: kernels do nothing there, so
//! any bytes will do for their code, and compiling takes no time.
//!
//! It is an object of its own because cuDNN and PyTorch load it by its soname; `vramwise rehearse` gives it the
//! soname of CUDA 12 where that is needed.
#![allow(unsafe_code)]
#![allow(missing_docs, reason = "the functions are documented by nvrtc.h")]
#![allow(non_snake_case, reason = "names of C")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `NVRTC_ERROR_INVALID_INPUT`.
const INVALID_INPUT: i32 = 3;

/// What every compilation gives.
static IMAGE: [u8; 64] = [0; 64];
static NEXT: AtomicUsize = AtomicUsize::new(0x6100_0000_1000);

fn put<T>(to: *mut T, value: T) -> i32 {
    if to.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: nvrtc.h promises a valid pointer for the result.
    unsafe { to.write_unaligned(value) };
    0
}

fn put_image(to: *mut c_char) -> i32 {
    if to.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller asked for the size first and gives a buffer of that size.
    unsafe { std::ptr::copy_nonoverlapping(IMAGE.as_ptr(), to.cast(), IMAGE.len()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> i32 {
    put(minor, 0);
    put(major, 13)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(_code: c_int) -> *const c_char {
    c"emulated compiler".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> i32 {
    put(count, ARCHITECTURES.len() as c_int)
}

/// Compute capabilities that CUDA 13 compiles for.
const ARCHITECTURES: [c_int; 10] = [75, 80, 86, 87, 88, 89, 90, 100, 103, 120];

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetSupportedArchs(to: *mut c_int) -> i32 {
    if to.is_null() {
        return INVALID_INPUT;
    }
    for (i, arch) in ARCHITECTURES.into_iter().enumerate() {
        put(to.wrapping_add(i), arch);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCreateProgram(
    to: *mut usize,
    _source: *const c_char,
    _name: *const c_char,
    _count: c_int,
    _headers: *const *const c_char,
    _names: *const *const c_char,
) -> i32 {
    put(to, NEXT.fetch_add(64, Ordering::Relaxed))
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcDestroyProgram(program: *mut usize) -> i32 {
    put(program, 0)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCompileProgram(_: usize, _: c_int, _: *const *const c_char) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetCUBINSize(_program: usize, bytes: *mut usize) -> i32 {
    put(bytes, IMAGE.len())
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetCUBIN(_program: usize, to: *mut c_char) -> i32 {
    put_image(to)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetPTXSize(_program: usize, bytes: *mut usize) -> i32 {
    put(bytes, IMAGE.len())
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetPTX(_program: usize, to: *mut c_char) -> i32 {
    put_image(to)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetLTOIRSize(_program: usize, bytes: *mut usize) -> i32 {
    put(bytes, IMAGE.len())
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetLTOIR(_program: usize, to: *mut c_char) -> i32 {
    put_image(to)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetProgramLogSize(_program: usize, bytes: *mut usize) -> i32 {
    put(bytes, 1)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetProgramLog(_program: usize, to: *mut c_char) -> i32 {
    put(to, 0)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcAddNameExpression(_program: usize, _name: *const c_char) -> i32 {
    0
}

/// Names are not mangled: nothing looks them up in real code.
#[unsafe(no_mangle)]
extern "C" fn nvrtcGetLoweredName(
    _program: usize,
    name: *const c_char,
    to: *mut *const c_char,
) -> i32 {
    put(to, name)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcSetFlowCallback(_: usize, _: *const c_void, _: *mut c_void) -> i32 {
    0
}

/// Names that the library exports and that have no meaning here: loaders look for them before they use any.
macro_rules! no_op {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            0
        }
    )*};
}

no_op! {
    __nvrtcCPEx
    nvrtcGetOptiXIR
    nvrtcGetOptiXIRSize
    nvrtcGetPCHCreateStatus
    nvrtcGetPCHHeapSize
    nvrtcGetPCHHeapSizeRequired
    nvrtcSetPCHHeapSize
    nvrtcGetTileIR
    nvrtcGetTileIRSize
    nvrtcGetNVVM
    nvrtcGetNVVMSize
}

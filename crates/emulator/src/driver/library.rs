//! Modules, libraries, kernels: handles without code behind them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::put;
use crate::runtime::REGISTERS;
use crate::{machine, stub};

fn new(to: *mut usize) -> i32 {
    put(to, stub::new_handle());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(to: *mut usize, _file: *const c_char) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: *mut usize, _image: *const c_void) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    to: *mut usize,
    _image: *const c_void,
    _count: c_uint,
    _options: *const c_int,
    _values: *const *const c_void,
) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadFatBinary(to: *mut usize, _image: *const c_void) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(to: *mut usize, _module: usize, _name: *const c_char) -> i32 {
    new(to)
}

/// A module's variable has an address, but no memory of the card.
fn global(to: *mut u64, bytes: *mut usize) -> i32 {
    const SIZE: u64 = 2 << 20;
    let addr = machine::lock().physical.reserve(SIZE).unwrap_or(0);
    put(to, addr);
    put(bytes, SIZE as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(
    to: *mut u64,
    bytes: *mut usize,
    _module: usize,
    _name: *const c_char,
) -> i32 {
    global(to, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetGlobal(
    to: *mut u64,
    bytes: *mut usize,
    _library: usize,
    _name: *const c_char,
) -> i32 {
    global(to, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetLoadingMode(mode: *mut c_int) -> i32 {
    // CU_MODULE_LAZY_LOADING
    put(mode, 2);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadData(
    to: *mut usize,
    _code: *const c_void,
    _options: *const c_int,
    _values: *const *const c_void,
    _count: c_uint,
    _library_options: *const c_int,
    _library_values: *const *const c_void,
    _library_count: c_uint,
) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadFromFile(
    to: *mut usize,
    _file: *const c_char,
    _options: *const c_int,
    _values: *const *const c_void,
    _count: c_uint,
    _library_options: *const c_int,
    _library_values: *const *const c_void,
    _library_count: c_uint,
) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetKernel(to: *mut usize, _library: usize, _name: *const c_char) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetModule(to: *mut usize, _library: usize) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetFunction(to: *mut usize, kernel: usize) -> i32 {
    put(to, kernel);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, _function: usize) -> i32 {
    let machine = machine::lock();
    let version = machine.code_architecture();
    let found = match attribute {
        0 => 1024,
        4 => REGISTERS,
        5 | 6 => version,
        8 => machine.attribute(97),
        9 => -1,
        _ => 0,
    };
    put(value, found);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    kernel: usize,
    _device: c_int,
) -> i32 {
    cuFuncGetAttribute(value, attribute, kernel)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate(
    _count: c_uint,
    _options: *const c_int,
    _values: *const *const c_void,
    to: *mut usize,
) -> i32 {
    new(to)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *const c_int,
    values: *const *const c_void,
    to: *mut usize,
) -> i32 {
    cuLinkCreate(count, options, values, to)
}

/// What a link gives: bytes that nothing here runs.
static IMAGE: [u8; 64] = [0; 64];

#[unsafe(no_mangle)]
extern "C" fn cuLinkComplete(_state: usize, image: *mut *const u8, bytes: *mut usize) -> i32 {
    put(image, IMAGE.as_ptr());
    put(bytes, IMAGE.len());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: usize,
    block: c_int,
    _shared: usize,
) -> i32 {
    put(blocks, crate::runtime::blocks_per_multiprocessor(block));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: usize,
    block: c_int,
    shared: usize,
    _flags: c_uint,
) -> i32 {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    _function: usize,
    _config: *const c_void,
) -> i32 {
    put(size, 8);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: usize,
    _config: *const c_void,
) -> i32 {
    put(clusters, machine::lock().attribute(16));
    0
}

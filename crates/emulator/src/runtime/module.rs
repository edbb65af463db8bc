//! What the compiler's start-up code calls: fat binaries, kernels and device variables register here.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::put;
use crate::machine::{self, Machine, Variable};
use crate::runtime::Error;
use crate::{abi, driver, stub};

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: *const c_void) -> usize {
    stub::new_handle()
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_handle: usize) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(_handle: usize) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    _handle: usize,
    _host: *const c_void,
    _device: *const c_char,
    _name: *const c_char,
    _limit: c_int,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_handle: usize) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    _handle: usize,
    host: *const c_void,
    _device: *const c_char,
    _name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    let variable = Variable { size, ..Variable::default() };
    machine::lock().variables.insert(host as usize, variable);
}

/// The kernel of a host function: the function's address stands for it.
#[unsafe(no_mangle)]
extern "C" fn __cudaGetKernel(to: *mut usize, function: *const c_void) -> i32 {
    put(to, function as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetFuncBySymbol(to: *mut usize, function: *const c_void) -> i32 {
    put(to, function as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetKernel(to: *mut usize, function: *const c_void) -> i32 {
    put(to, function as usize);
    0
}

impl Machine {
    /// The address of a device variable on the calling thread's device. Variables lie in the context's own
    /// memory, so nothing is taken from the card.
    pub(crate) fn variable(&mut self, host: usize) -> Option<u64> {
        let device = machine::current_device();
        let variable = self.variables.get(&host)?;
        if let Some(addr) = variable.addr.get(&device) {
            return Some(*addr);
        }
        let bytes = (variable.size as u64).max(1).next_multiple_of(2 << 20);
        let addr = self.physical.reserve(bytes)?;
        self.variables.get_mut(&host)?.addr.insert(device, addr);
        Some(addr)
    }
}

/// `cudaDriverEntryPointQueryResult`.
const FOUND: c_int = 0;
const SYMBOL_NOT_FOUND: c_int = 1;

fn entry_point(symbol: *const c_char, to: *mut *const c_void, result: *mut c_int) -> i32 {
    let name = abi::text(symbol);
    let found = driver::find(&name);
    put(to, found.unwrap_or(std::ptr::null()));
    put(result, if found.is_some() { FOUND } else { SYMBOL_NOT_FOUND });
    if found.is_none() {
        machine::lock().note_unknown(name);
        // A caller that gives no place for the result learns it from the status.
        if result.is_null() {
            return Error::NotFound as i32;
        }
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDriverEntryPoint(
    symbol: *const c_char,
    to: *mut *const c_void,
    _flags: u64,
    result: *mut c_int,
) -> i32 {
    entry_point(symbol, to, result)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDriverEntryPointByVersion(
    symbol: *const c_char,
    to: *mut *const c_void,
    _version: u32,
    _flags: u64,
    result: *mut c_int,
) -> i32 {
    entry_point(symbol, to, result)
}

//! Our own entry points, for the bootstrap inside the rehearsed program.

use std::ffi::{c_int, c_void};

use crate::machine::operation;
use crate::{abi, machine, report};

/// Inputs of one operation; PyTorch's take lists of thousands.
const MOST_INPUTS: usize = 1 << 20;

/// Version of this interface.
#[unsafe(no_mangle)]
extern "C" fn vramwise_emulator_version() -> i32 {
    1
}

/// The calling thread's next small copy from device to host gives these bytes (if it has that size). Several may be
/// told before one operation; `len` 0 takes back those that were not asked for.
#[unsafe(no_mangle)]
extern "C" fn vramwise_answer_next_copy(bytes: *const c_void, len: usize) {
    if len <= machine::SMALL_COPY {
        machine::tell_next(abi::bytes(bytes, len));
    }
}

/// The calling thread begins an operation of PyTorch's. Of its inputs `count` are known: pairs of address and bytes. What it
/// reads elsewhere, and was not told before, are zeros.
#[unsafe(no_mangle)]
extern "C" fn vramwise_operation_begins(places: *const u64, count: usize) {
    let place = |at: usize| abi::get(places.wrapping_add(at)).unwrap_or(0);
    let known = (0..count.min(MOST_INPUTS)).map(|n| (place(2 * n), place(2 * n + 1)));
    operation::begin(known.collect());
}

/// That operation has run: how often it read what nothing is known of.
#[unsafe(no_mangle)]
extern "C" fn vramwise_operation_ends() -> c_int {
    c_int::try_from(operation::end()).unwrap_or(c_int::MAX)
}

/// Whether device memory is memory of this process: 1, or 0 where there are addresses and nothing behind them.
#[unsafe(no_mangle)]
extern "C" fn vramwise_is_backed() -> c_int {
    c_int::from(machine::lock().is_backed())
}

/// Makes a range of device memory read as zeros without committing it.
#[unsafe(no_mangle)]
extern "C" fn vramwise_clear(addr: u64, bytes: u64) {
    machine::clear_host(addr, bytes);
}

/// What the calling thread reads from now on belongs to a compiler (1), which runs in one pass only, or to the program (0).
#[unsafe(no_mangle)]
extern "C" fn vramwise_compiling(now: c_int) {
    machine::tell_compiling(now != 0);
}

/// Writes `device.<pid>.json` now.
#[unsafe(no_mangle)]
extern "C" fn vramwise_write_report() {
    report::write(&mut machine::lock());
}

/// A group of processes was made that would have a communicator of NCCL's on a GPU.
#[unsafe(no_mangle)]
extern "C" fn vramwise_communicator() {
    machine::lock().communicators += 1;
}

/// Adds a remark to the report: a text that ends with a zero byte.
#[unsafe(no_mangle)]
extern "C" fn vramwise_note(text: *const std::ffi::c_char) {
    let text = abi::text(text);
    machine::lock().notes.push(text);
}

/// Says which process of the program this is, so that both passes know it again; before it reads a value.
#[unsafe(no_mangle)]
extern "C" fn vramwise_name_process(name: *const std::ffi::c_char) {
    let name = abi::text(name);
    machine::lock().values.process = name;
}

//! Kernels: registered, asked about, launched without effect but on the virtual clock.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use crate::abi::put;
use crate::machine::{self, Step};

/// Virtual time of a kernel, nanoseconds.
pub(crate) const KERNEL_NS: u64 = 4_000;
/// Registers a thread of a kernel that nobody measured; sizes that libraries derive from occupancy did not
/// depend on it on an H200.
pub(crate) const REGISTERS: i32 = 32;

/// `dim3`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
) -> c_uint {
    CONFIGURATIONS.with_borrow_mut(|all| all.push(Configuration { grid, block, shared, stream }));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut usize,
) -> i32 {
    let last = CONFIGURATIONS.with_borrow_mut(Vec::pop);
    if let Some(last) = last {
        put(grid, last.grid);
        put(block, last.block);
        put(shared, last.shared);
        put(stream, last.stream);
    }
    0
}

/// A kernel was put into a stream.
pub(crate) fn launched(stream: usize) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    machine.reach(device, Step::FirstKernel);
    machine.kernel(KERNEL_NS);
    if machine.captures.is_any_open()
        && let Some(id) = machine.streams.get(stream, device).and_then(|s| s.capture)
    {
        machine.captures.add_node(id);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernel(
    _function: *const c_void,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *mut *mut c_void,
    _shared: usize,
    stream: usize,
) -> i32 {
    launched(stream)
}

#[unsafe(no_mangle)]
extern "C" fn __cudaLaunchKernel(
    _kernel: usize,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *mut *mut c_void,
    _shared: usize,
    stream: usize,
) -> i32 {
    launched(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchCooperativeKernel(
    _function: *const c_void,
    _grid: Dim3,
    _block: Dim3,
    _arguments: *mut *mut c_void,
    _shared: usize,
    stream: usize,
) -> i32 {
    launched(stream)
}

/// The head of `cudaLaunchConfig_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernelExC(
    config: *const c_void,
    _function: *const c_void,
    _arguments: *mut *mut c_void,
) -> i32 {
    launched(crate::abi::get(config.cast::<LaunchConfig>()).map_or(0, |c| c.stream))
}

/// `cudaFuncAttributes`.
#[repr(C)]
struct FuncAttributes {
    shared_bytes: usize,
    const_bytes: usize,
    local_bytes: usize,
    max_threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared_bytes: c_int,
    shared_carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncGetAttributes(to: *mut c_void, _function: *const c_void) -> i32 {
    let machine = machine::lock();
    let version = machine.code_architecture();
    put(
        to.cast(),
        FuncAttributes {
            shared_bytes: 0,
            const_bytes: 0,
            local_bytes: 0,
            max_threads_per_block: 1024,
            registers: REGISTERS,
            ptx_version: version,
            binary_version: version,
            cache_mode: 0,
            max_dynamic_shared_bytes: machine.attribute(97),
            shared_carveout: -1,
            cluster: [0; 6],
            reserved: [0; 16],
        },
    );
    0
}

/// Blocks of a kernel that fit on a multiprocessor, by threads and registers.
pub(crate) fn blocks_per_multiprocessor(block: c_int) -> c_int {
    let machine = machine::lock();
    let block = block.max(1);
    let by_threads = machine.attribute(39) / block;
    let by_registers = machine.attribute(82) / (REGISTERS * block.max(32));
    by_threads.min(by_registers).min(machine.attribute(106)).max(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: *const c_void,
    block: c_int,
    _shared: usize,
) -> i32 {
    put(blocks, blocks_per_multiprocessor(block));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    _function: *const c_void,
    block: c_int,
    _shared: usize,
    _flags: c_uint,
) -> i32 {
    put(blocks, blocks_per_multiprocessor(block));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    _function: *const c_void,
    _blocks: c_int,
    _block: c_int,
) -> i32 {
    put(bytes, usize::try_from(machine::lock().attribute(97)).unwrap_or(0));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    _function: *const c_void,
    _config: *const c_void,
) -> i32 {
    put(size, 8);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: *const c_void,
    _config: *const c_void,
) -> i32 {
    put(clusters, machine::lock().attribute(16));
    0
}

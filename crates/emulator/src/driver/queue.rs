//! Launches, streams and events of the driver API: the runtime's, under their other names.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::get;
use crate::runtime;

unsafe extern "C" {
    safe fn cudaStreamDestroy(stream: usize) -> i32;
    safe fn cudaStreamSynchronize(stream: usize) -> i32;
    safe fn cudaStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> i32;
    safe fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> i32;
    safe fn cudaStreamGetPriority(stream: usize, priority: *mut c_int) -> i32;
    safe fn cudaStreamGetCaptureInfo_v3(
        stream: usize,
        status: *mut c_int,
        id: *mut u64,
        graph: *mut usize,
        dependencies: *mut *const c_void,
        edges: *mut *const c_void,
        count: *mut usize,
    ) -> i32;
    safe fn cudaEventCreateWithFlags(to: *mut usize, flags: c_uint) -> i32;
    safe fn cudaEventDestroy(event: usize) -> i32;
    safe fn cudaEventRecord(event: usize, stream: usize) -> i32;
    safe fn cudaEventQuery(event: usize) -> i32;
    safe fn cudaEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> i32;
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    _function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: usize,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> i32 {
    runtime::launched(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    _function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: usize,
    _parameters: *mut *mut c_void,
) -> i32 {
    runtime::launched(stream)
}

/// The head of `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LaunchConfig {
    sizes: [c_uint; 7],
    stream: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    config: *const c_void,
    _function: usize,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> i32 {
    runtime::launched(get(config.cast::<LaunchConfig>()).map_or(0, |c| c.stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: *mut usize, flags: c_uint) -> i32 {
    runtime::create_stream(to, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(to: *mut usize, flags: c_uint, priority: c_int) -> i32 {
    runtime::create_stream(to, flags, priority)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> i32 {
    cudaStreamDestroy(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> i32 {
    cudaStreamSynchronize(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> i32 {
    cudaStreamWaitEvent(stream, event, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> i32 {
    cudaStreamIsCapturing(stream, status)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: *mut c_int) -> i32 {
    cudaStreamGetPriority(stream, priority)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    let edges = std::ptr::null_mut();
    cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(to: *mut usize, flags: c_uint) -> i32 {
    cudaEventCreateWithFlags(to, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> i32 {
    cudaEventDestroy(event)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> i32 {
    cudaEventRecord(event, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> i32 {
    cudaEventQuery(event)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> i32 {
    cudaEventQuery(event)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> i32 {
    cudaEventElapsedTime(ms, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue32(_stream: usize, addr: u64, value: u32, _flags: c_uint) -> i32 {
    crate::abi::put(addr as *mut u32, value);
    0
}

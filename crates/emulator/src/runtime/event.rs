//! Events: done as soon as they are recorded, with the virtual time of the record.

use std::ffi::{c_int, c_uint};

use super::error::{Error, set_error, status};
use super::memory::IpcHandle;
use crate::abi::put;
use crate::machine;

/// `cudaEventDisableTiming`.
const DISABLE_TIMING: c_uint = 2;

#[unsafe(no_mangle)]
extern "C" fn cudaEventCreate(to: *mut usize) -> i32 {
    cudaEventCreateWithFlags(to, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventCreateWithFlags(to: *mut usize, flags: c_uint) -> i32 {
    let device = machine::current_device();
    put(to, machine::lock().streams.create_event(device, flags & DISABLE_TIMING == 0));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventDestroy(event: usize) -> i32 {
    status(machine::lock().streams.destroy_event(event), Error::InvalidResourceHandle)
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecord(event: usize, stream: usize) -> i32 {
    cudaEventRecordWithFlags(event, stream, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: c_uint) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let (now, streams) = (machine.clock_ns, &mut machine.streams);
    let capture = streams.get(stream, device).and_then(|s| s.capture);
    let Some(event) = streams.event(event) else { return set_error(Error::InvalidResourceHandle) };
    event.recorded = Some(now);
    event.capture = capture;
    event.device = device;
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventQuery(event: usize) -> i32 {
    let mut machine = machine::lock();
    let found = machine.streams.event(event).map(|e| e.capture);
    match found {
        // An event of a capture stands for no work yet.
        Some(Some(_)) => set_error(Error::StreamCaptureUnsupported),
        Some(None) => 0,
        None => set_error(Error::InvalidResourceHandle),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventSynchronize(event: usize) -> i32 {
    cudaEventQuery(event)
}

/// Virtual time between two records.
#[unsafe(no_mangle)]
extern "C" fn cudaEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> i32 {
    let mut machine = machine::lock();
    let mut time = |event| {
        let event = machine.streams.event(event)?;
        event.timed.then_some(event.recorded).flatten()
    };
    let (Some(start), Some(end)) = (time(start), time(end)) else {
        return set_error(Error::InvalidResourceHandle);
    };
    put(ms, (end as f64 - start as f64) as f32 / 1e6);
    0
}

/// CUDA 12's name of the same.
#[unsafe(no_mangle)]
extern "C" fn cudaEventElapsedTime_v2(ms: *mut f32, start: usize, end: usize) -> i32 {
    cudaEventElapsedTime(ms, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcGetEventHandle(handle: *mut IpcHandle, event: usize) -> i32 {
    put(handle, IpcHandle { words: [event as u64, 0, 0, 0, 0, 0, 0, 0] });
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcOpenEventHandle(to: *mut usize, _handle: IpcHandle) -> i32 {
    let device = machine::current_device();
    put(to, machine::lock().streams.create_event(device, false));
    0
}

/// Present for completeness of the profiler's interface.
#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStart() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStop() -> c_int {
    0
}

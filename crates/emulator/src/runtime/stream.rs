//! Streams and their captures.

use std::ffi::{c_int, c_uint, c_void};

use super::error::{Error, set_error, status};
use crate::abi::put;
use crate::machine::{self, CaptureStatus, Stream};

pub(crate) fn create(to: *mut usize, flags: c_uint, priority: c_int) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let stream = Stream { device, priority: priority.clamp(-5, 0), flags, capture: None };
    put(to, machine.add_stream(stream));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreate(to: *mut usize) -> i32 {
    create(to, 0, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreateWithFlags(to: *mut usize, flags: c_uint) -> i32 {
    create(to, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreateWithPriority(to: *mut usize, flags: c_uint, priority: c_int) -> i32 {
    create(to, flags, priority)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamDestroy(stream: usize) -> i32 {
    status(machine::lock().streams.destroy(stream), Error::InvalidResourceHandle)
}

/// A question about a stream, put where C wants the answer.
fn ask<T>(stream: usize, to: *mut T, answer: impl FnOnce(&Stream) -> T) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let Some(found) = machine.streams.get(stream, device) else {
        return set_error(Error::InvalidResourceHandle);
    };
    put(to, answer(found));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetPriority(stream: usize, priority: *mut c_int) -> i32 {
    ask(stream, priority, |s| s.priority)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetFlags(stream: usize, flags: *mut c_uint) -> i32 {
    ask(stream, flags, |s| s.flags)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetDevice(stream: usize, device: *mut c_int) -> i32 {
    ask(stream, device, |s| s.device as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetId(stream: usize, id: *mut u64) -> i32 {
    ask(stream, id, |_| stream as u64)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamQuery(_stream: usize) -> i32 {
    0
}

/// Waiting for a stream that is being captured is an error; otherwise all work is done already.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamSynchronize(stream: usize) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let capturing = machine.streams.get(stream, device).is_some_and(|s| s.capture.is_some());
    status(!capturing, Error::StreamCaptureUnsupported)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let Some(capture) = machine.streams.event(event).map(|e| e.capture) else {
        return set_error(Error::InvalidResourceHandle);
    };
    // Waiting for captured work pulls a stream into the capture.
    if let (Some(id), Some(stream)) = (capture, machine.streams.get(stream, device)) {
        stream.capture = Some(id);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamBeginCapture(stream: usize, _mode: c_int) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let id = machine.captures.begin();
    let Some(found) = machine.streams.get(stream, device) else {
        return set_error(Error::InvalidResourceHandle);
    };
    if found.capture.is_some() {
        machine.captures.end(id);
        return set_error(Error::StreamCaptureUnsupported);
    }
    found.capture = Some(id);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamEndCapture(stream: usize, graph: *mut usize) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let id = machine.streams.get(stream, device).and_then(|s| s.capture);
    let Some((id, capture)) = id.and_then(|id| Some((id, machine.captures.end(id)?))) else {
        return set_error(Error::StreamCaptureInvalidated);
    };
    machine.streams.end_capture(id);
    put(graph, capture.graph);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> i32 {
    ask(stream, status, |s| capture_status(s) as c_int)
}

fn capture_status(stream: &Stream) -> CaptureStatus {
    if stream.capture.is_some() { CaptureStatus::Active } else { CaptureStatus::None }
}

/// Where the parts of `cudaStreamGetCaptureInfo` go; any may be null.
struct CaptureInfo {
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
}

fn capture_info(stream: usize, to: &CaptureInfo) -> i32 {
    let device = machine::current_device();
    let mut machine = machine::lock();
    let Some(found) = machine.streams.get(stream, device).copied() else {
        return set_error(Error::InvalidResourceHandle);
    };
    put(to.status, capture_status(&found) as c_int);
    put(to.id, found.capture.unwrap_or(0));
    let capture = found.capture.and_then(|id| machine.captures.get(id));
    if let Some(capture) = capture {
        put(to.graph, capture.graph);
        put(to.dependencies, std::ptr::null());
        put(to.edges, std::ptr::null());
        put(to.count, 0);
    }
    0
}

/// CUDA 13: with edge data. CUDA 12 has the same name with only status and id, so the rest of the
/// arguments must not be looked at there.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    let null = std::ptr::null_mut();
    let major = machine::lock().cuda_major();
    let to = if major == 12 {
        let null_pointers = std::ptr::null_mut();
        CaptureInfo {
            status,
            id,
            graph: std::ptr::null_mut(),
            dependencies: null_pointers,
            edges: null_pointers,
            count: null,
        }
    } else {
        CaptureInfo { status, id, graph, dependencies, edges, count }
    };
    capture_info(stream, &to)
}

/// CUDA 12, without edge data.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    let edges = std::ptr::null_mut();
    capture_info(stream, &CaptureInfo { status, id, graph, dependencies, edges, count })
}

/// CUDA 12, with edge data.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo_v3(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    capture_info(stream, &CaptureInfo { status, id, graph, dependencies, edges, count })
}

#[unsafe(no_mangle)]
extern "C" fn cudaThreadExchangeStreamCaptureMode(_mode: *mut c_int) -> i32 {
    0
}

type HostFunction = Option<extern "C" fn(*mut c_void)>;

/// All work before it is done: the function can run at once.
#[unsafe(no_mangle)]
extern "C" fn cudaLaunchHostFunc(stream: usize, function: HostFunction, data: *mut c_void) -> i32 {
    let device = machine::current_device();
    let capturing =
        machine::lock().streams.get(stream, device).is_some_and(|s| s.capture.is_some());
    if let Some(function) = function.filter(|_| !capturing) {
        function(data);
    }
    0
}

type StreamCallback = Option<extern "C" fn(usize, i32, *mut c_void)>;

#[unsafe(no_mangle)]
extern "C" fn cudaStreamAddCallback(
    stream: usize,
    callback: StreamCallback,
    data: *mut c_void,
    _flags: c_uint,
) -> i32 {
    if let Some(callback) = callback {
        callback(stream, 0, data);
    }
    0
}

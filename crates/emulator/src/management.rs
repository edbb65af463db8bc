//! NVML (`libnvidia-ml.so.1`): what PyTorch and monitoring libraries ask of it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{self, put};
use crate::machine;

/// `NVML_ERROR_INVALID_ARGUMENT` and `NVML_ERROR_NOT_SUPPORTED`.
const INVALID: i32 = 2;
const NOT_SUPPORTED: i32 = 3;
const FIRST_HANDLE: usize = 0x5200_0000_0000;

fn index_of(handle: usize) -> Option<usize> {
    Some(handle.checked_sub(FIRST_HANDLE)? / 64).filter(|i| *i < machine::lock().devices.len())
}

fn uuid_text(index: usize) -> String {
    let u = machine::uuid(index);
    let hex: Vec<String> = u.iter().map(|b| format!("{b:02x}")).collect();
    let part = |from: usize, to: usize| hex[from..to].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_code: c_int) -> *const c_char {
    c"emulated NVML".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> i32 {
    put(count, machine::lock().devices.len() as c_uint);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(count: *mut c_uint) -> i32 {
    nvmlDeviceGetCount_v2(count)
}

fn handle(index: Option<usize>, to: *mut usize) -> i32 {
    let Some(index) = index.filter(|i| *i < machine::lock().devices.len()) else { return INVALID };
    put(to, FIRST_HANDLE + index * 64);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut usize) -> i32 {
    handle(Some(index as usize), to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, to: *mut usize) -> i32 {
    handle(Some(index as usize), to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut usize) -> i32 {
    let uuid = abi::text(uuid);
    let count = machine::lock().devices.len();
    handle((0..count).find(|i| uuid_text(*i) == uuid), to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, to: *mut usize) -> i32 {
    let id = abi::text(id);
    let bus = id.split(':').nth(1).and_then(|bus| usize::from_str_radix(bus, 16).ok());
    handle(bus.and_then(|b| b.checked_sub(1)), to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: usize, to: *mut c_uint) -> i32 {
    let Some(index) = index_of(device) else { return INVALID };
    put(to, index as c_uint);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(_device: usize, to: *mut c_char, len: c_uint) -> i32 {
    abi::put_text(to, len as usize, &machine::lock().config.profile.name);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: usize, to: *mut c_char, len: c_uint) -> i32 {
    let Some(index) = index_of(device) else { return INVALID };
    abi::put_text(to, len as usize, &uuid_text(index));
    0
}

/// `nvmlMemory_t`: total, free, used bytes.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: usize, to: *mut [u64; 3]) -> i32 {
    let Some(index) = index_of(device) else { return INVALID };
    let machine = machine::lock();
    let card = &machine.devices[index];
    let free = card.free_bytes();
    put(to, [card.total, free, card.total - free]);
    0
}

/// `nvmlMemory_v2_t`: version, total, reserved, free, used.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, to: *mut [u64; 5]) -> i32 {
    let Some(index) = index_of(device) else { return INVALID };
    let machine = machine::lock();
    let card = &machine.devices[index];
    let version = abi::get(to).map_or(0, |v| v[0]);
    let free = card.free_bytes();
    put(to, [version, card.total, 0, free, card.total - free]);
    0
}

/// One process: this one.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: usize,
    count: *mut c_uint,
    to: *mut c_void,
) -> i32 {
    /// `nvmlProcessInfo_t`.
    #[repr(C)]
    struct Process {
        pid: c_uint,
        used: u64,
        instance: c_uint,
        compute: c_uint,
    }
    let Some(index) = index_of(device) else { return INVALID };
    if abi::get(count).unwrap_or(0) == 0 {
        put(count, 1);
        // NVML_ERROR_INSUFFICIENT_SIZE
        return 7;
    }
    let machine = machine::lock();
    let card = &machine.devices[index];
    let used = card.total - card.free_bytes();
    let pid = std::process::id();
    put(to.cast(), Process { pid, used, instance: u32::MAX, compute: u32::MAX });
    put(count, 1);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: usize,
    count: *mut c_uint,
    to: *mut c_void,
) -> i32 {
    nvmlDeviceGetComputeRunningProcesses_v3(device, count, to)
}

/// The unversioned form has the same structure in today's headers.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: usize,
    count: *mut c_uint,
    to: *mut c_void,
) -> i32 {
    nvmlDeviceGetComputeRunningProcesses_v3(device, count, to)
}

/// `nvmlUtilization_t`: nothing computes here.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(_device: usize, to: *mut [c_uint; 2]) -> i32 {
    put(to, [0, 0]);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(_device: usize, _sensor: c_int, to: *mut c_uint) -> i32 {
    put(to, 0);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(_device: usize, to: *mut c_uint) -> i32 {
    put(to, 0);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    _device: usize,
    major: *mut c_int,
    minor: *mut c_int,
) -> i32 {
    let machine = machine::lock();
    put(major, machine.attribute(75));
    put(minor, machine.attribute(76));
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, len: c_uint) -> i32 {
    abi::put_text(to, len as usize, "580.00 (emulated)");
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(to: *mut c_char, len: c_uint) -> i32 {
    abi::put_text(to, len as usize, "13.580 (emulated)");
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> i32 {
    put(version, 13_000);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(_a: usize, _b: usize, _what: c_int, to: *mut c_int) -> i32 {
    put(to, 0);
    0
}

/// `nvmlGpuFabricInfoV_t` behind its version: no cluster, no clique, state "not supported".
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(_device: usize, to: *mut c_void) -> i32 {
    abi::fill(to.wrapping_byte_add(4), 0, 25);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(_: usize, _: c_uint, _: *mut c_int) -> i32 {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(_: usize, _: c_uint, _: *mut c_void) -> i32 {
    NOT_SUPPORTED
}

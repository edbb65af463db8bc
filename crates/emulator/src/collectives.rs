//! NCCL: communicators of which this process is one rank. Nobody is at the other end; buffers keep what they
//! hold. What NCCL itself takes of the card is not counted: the report has the number of communicators instead.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::abi::put;
use crate::{machine, stub};

/// Version that is shown: 2.28.9.
const VERSION: c_int = 22_809;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId {
    internal: [u8; 128],
}

#[derive(Clone, Copy)]
struct Communicator {
    ranks: c_int,
    rank: c_int,
    device: usize,
}

static COMMUNICATORS: Mutex<BTreeMap<usize, Communicator>> = Mutex::new(BTreeMap::new());

fn all() -> std::sync::MutexGuard<'static, BTreeMap<usize, Communicator>> {
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make(to: *mut usize, ranks: c_int, rank: c_int, device: usize) -> i32 {
    let handle = stub::new_handle();
    machine::lock().communicators += 1;
    let mut known = all();
    known.insert(handle, Communicator { ranks, rank, device });
    put(to, handle);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> i32 {
    put(version, VERSION);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(to: *mut UniqueId) -> i32 {
    let mut id = UniqueId { internal: [0; 128] };
    id.internal[..8].copy_from_slice(&stub::new_handle().to_ne_bytes());
    put(to, id);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(to: *mut usize, ranks: c_int, _id: UniqueId, rank: c_int) -> i32 {
    make(to, ranks, rank, machine::current_device())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(
    to: *mut usize,
    ranks: c_int,
    _id: UniqueId,
    rank: c_int,
    _config: *mut c_void,
) -> i32 {
    make(to, ranks, rank, machine::current_device())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankScalable(
    to: *mut usize,
    ranks: c_int,
    rank: c_int,
    _id_count: c_int,
    _ids: *mut c_void,
    _config: *mut c_void,
) -> i32 {
    make(to, ranks, rank, machine::current_device())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(to: *mut usize, count: c_int, devices: *const c_int) -> i32 {
    for i in 0..count {
        let at = usize::try_from(i).unwrap_or(0);
        let device = crate::abi::get(devices.wrapping_add(at)).unwrap_or(i);
        make(to.wrapping_add(at), count, i, usize::try_from(device).unwrap_or(0));
    }
    0
}

/// Without the others' colours all ranks are taken to have ours.
#[unsafe(no_mangle)]
extern "C" fn ncclCommSplit(
    comm: usize,
    color: c_int,
    _key: c_int,
    to: *mut usize,
    _config: *mut c_void,
) -> i32 {
    let parent = all().get(&comm).copied();
    let Some(parent) = parent.filter(|_| color >= 0) else {
        put(to, 0);
        return 0;
    };
    make(to, parent.ranks, parent.rank, parent.device)
}

fn ask(comm: usize, to: *mut c_int, answer: impl Fn(&Communicator) -> c_int) -> i32 {
    // ncclInvalidArgument
    const INVALID: i32 = 4;
    let known = all();
    let Some(found) = known.get(&comm) else { return INVALID };
    put(to, answer(found));
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCount(comm: usize, count: *mut c_int) -> i32 {
    ask(comm, count, |c| c.ranks)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommUserRank(comm: usize, rank: *mut c_int) -> i32 {
    ask(comm, rank, |c| c.rank)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCuDevice(comm: usize, device: *mut c_int) -> i32 {
    ask(comm, device, |c| c.device as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(comm: usize) -> i32 {
    all().remove(&comm);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(comm: usize) -> i32 {
    all().remove(&comm);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(_comm: usize, error: *mut c_int) -> i32 {
    put(error, 0);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(_code: c_int) -> *const c_char {
    c"emulated NCCL".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: usize) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) -> i32 {
    let made = machine::lock().malloc(machine::current_device(), bytes as u64);
    put(to, made.unwrap_or(0) as *mut c_void);
    // ncclUnhandledCudaError
    i32::from(made.is_none())
}

#[unsafe(no_mangle)]
extern "C" fn ncclMemFree(addr: *mut c_void) -> i32 {
    machine::lock().free(addr as u64);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommRegister(_comm: usize, _: *mut c_void, _: usize, to: *mut usize) -> i32 {
    put(to, stub::new_handle());
    0
}

//! The C structures of `include/vramwise_engine.h`.
#![allow(missing_docs, reason = "the header documents them")]

use std::ffi::{c_char, c_int, c_void};

use vramwise_arena::{BlockInfo, BlockState, PoolId, SegmentInfo, Shortage, Stat, Stats};

/// `VRAMWISE_ENGINE_VERSION`.
pub const VERSION: u32 = 3;

pub(crate) const OK: c_int = 0;
pub(crate) const OUT_OF_MEMORY: c_int = 1;
pub(crate) const UNKNOWN_ADDRESS: c_int = 2;
pub(crate) const INVALID: c_int = 3;
pub(crate) const DRIVER: c_int = 4;
pub(crate) const NOT_READY: c_int = 5;
pub(crate) const UNSUPPORTED: c_int = 6;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Pool {
    pub first: u64,
    pub second: u64,
}

impl From<Pool> for PoolId {
    fn from(pool: Pool) -> Self {
        Self(pool.first, pool.second)
    }
}

impl From<PoolId> for Pool {
    fn from(pool: PoolId) -> Self {
        Self { first: pool.0, second: pool.1 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub requested: u64,
    pub stream: u64,
    pub pool: Pool,
    pub device: i32,
    pub small: u8,
    pub state: u8,
    pub reserved: [u8; 2],
}

impl Block {
    pub(crate) fn new(device: i32, info: &BlockInfo) -> Self {
        Self {
            address: info.address,
            size: info.size,
            requested: info.requested,
            stream: info.stream,
            pool: info.pool.into(),
            device,
            small: info.small.into(),
            state: match info.state {
                BlockState::Free => 0,
                BlockState::Live => 1,
                BlockState::Pending => 2,
            },
            reserved: [0; 2],
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Segment {
    pub address: u64,
    pub size: u64,
    pub allocated: u64,
    pub active: u64,
    pub requested: u64,
    pub stream: u64,
    pub pool: Pool,
    pub device: i32,
    pub small: u8,
    pub reserved: [u8; 3],
}

impl Segment {
    pub(crate) fn new(device: i32, info: &SegmentInfo) -> Self {
        Self {
            address: info.address,
            size: info.size,
            allocated: info.allocated,
            active: info.active,
            requested: info.requested,
            stream: info.stream,
            pool: Pool { first: info.pool.0, second: info.pool.1 },
            device,
            small: info.small.into(),
            reserved: [0; 3],
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StatC {
    pub current: i64,
    pub peak: i64,
    pub allocated: i64,
    pub freed: i64,
}

impl From<Stat> for StatC {
    fn from(s: Stat) -> Self {
        Self { current: s.current, peak: s.peak, allocated: s.allocated, freed: s.freed }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StatsC {
    pub allocation: [StatC; 3],
    pub segment: [StatC; 3],
    pub active: [StatC; 3],
    pub inactive_split: [StatC; 3],
    pub allocated_bytes: [StatC; 3],
    pub reserved_bytes: [StatC; 3],
    pub active_bytes: [StatC; 3],
    pub inactive_split_bytes: [StatC; 3],
    pub requested_bytes: [StatC; 3],
    pub num_alloc_retries: i64,
    pub num_ooms: i64,
    pub num_sync_all_streams: i64,
    pub num_device_alloc: i64,
    pub num_device_free: i64,
}

impl From<Stats> for StatsC {
    fn from(s: Stats) -> Self {
        Self {
            allocation: s.allocation.map(Into::into),
            segment: s.segment.map(Into::into),
            active: s.active.map(Into::into),
            inactive_split: s.inactive_split.map(Into::into),
            allocated_bytes: s.allocated_bytes.map(Into::into),
            reserved_bytes: s.reserved_bytes.map(Into::into),
            active_bytes: s.active_bytes.map(Into::into),
            inactive_split_bytes: s.inactive_split_bytes.map(Into::into),
            requested_bytes: s.requested_bytes.map(Into::into),
            num_alloc_retries: s.num_alloc_retries,
            num_ooms: s.num_ooms,
            num_sync_all_streams: s.num_sync_all_streams,
            num_device_alloc: s.num_device_alloc,
            num_device_free: s.num_device_free,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ShortageC {
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub limit_bytes: u64,
    pub held_bytes: u64,
    pub allocated_bytes: u64,
    pub pending_bytes: u64,
    pub private_bytes: u64,
    pub largest_free_bytes: u64,
}

impl From<Shortage> for ShortageC {
    fn from(s: Shortage) -> Self {
        Self {
            free_bytes: s.free,
            total_bytes: s.total,
            limit_bytes: s.limit,
            held_bytes: s.held,
            allocated_bytes: s.allocated,
            pending_bytes: s.pending,
            private_bytes: s.private,
            largest_free_bytes: s.largest_free,
        }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Calls {
    pub name: *const c_char,
    pub count: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

pub(crate) type OnSegment = unsafe extern "C" fn(*mut c_void, *const Segment);
pub(crate) type OnBlock = unsafe extern "C" fn(*mut c_void, *const Block);

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hooks {
    pub context: *mut c_void,
    pub segment: Option<unsafe extern "C" fn(*mut c_void, *const Segment, c_int)>,
    pub free_completed: Option<OnBlock>,
}

/// `vramwise_engine`.
#[allow(missing_debug_implementations)]
#[repr(C)]
pub struct Engine {
    pub version: u32,
    pub bytes: u32,
    pub init: extern "C" fn(i32) -> c_int,
    pub set_settings: extern "C" fn(i32, *const c_char) -> c_int,
    pub settings: extern "C" fn(i32, *mut c_char, usize) -> usize,
    pub last_message: extern "C" fn() -> *const c_char,
    pub driver_calls: extern "C" fn(i32, *mut Calls, usize) -> usize,
    pub movable: extern "C" fn(i32) -> u64,
    pub set_hooks: extern "C" fn(*const Hooks),
    pub alloc: extern "C" fn(i32, u64, u64, Pool, *mut Block) -> c_int,
    pub free: extern "C" fn(u64, *mut Block) -> c_int,
    pub record_stream: extern "C" fn(u64, u64) -> c_int,
    pub find: extern "C" fn(u64, *mut Block) -> c_int,
    pub base: extern "C" fn(u64, *mut u64, *mut u64) -> c_int,
    pub shortage: extern "C" fn(i32, u64, Pool, *mut ShortageC) -> c_int,
    pub count_oom: extern "C" fn(i32) -> c_int,
    pub pool_retain: extern "C" fn(i32, Pool) -> c_int,
    pub pool_release: extern "C" fn(i32, Pool) -> c_int,
    pub pool_users: extern "C" fn(i32, Pool) -> i64,
    pub capture_begin: extern "C" fn(i32, Pool) -> c_int,
    pub capture_end: extern "C" fn(i32, Pool) -> c_int,
    pub pool_use_on_oom: extern "C" fn(i32, Pool, c_int) -> c_int,
    pub pool_restore: extern "C" fn(
        i32,
        Pool,
        *const Block,
        usize,
        *mut c_void,
        Option<OnBlock>,
        Option<OnBlock>,
    ) -> c_int,
    pub empty_cache: extern "C" fn(i32, Pool) -> c_int,
    pub set_memory_fraction: extern "C" fn(i32, f64) -> c_int,
    pub memory_fraction: extern "C" fn(i32) -> f64,
    pub largest_free: extern "C" fn(i32) -> u64,
    pub stats: extern "C" fn(i32, *mut StatsC) -> c_int,
    pub reset_peak_stats: extern "C" fn(i32) -> c_int,
    pub reset_accumulated_stats: extern "C" fn(i32) -> c_int,
    pub walk:
        extern "C" fn(i32, *const Pool, *mut c_void, Option<OnSegment>, Option<OnBlock>) -> c_int,
    pub enable_peer: extern "C" fn(i32, i32) -> c_int,
    pub share:
        extern "C" fn(u64, *mut u64, *mut u64, *mut i32, *mut u64, usize, *mut usize) -> c_int,
    pub check: extern "C" fn(i32) -> c_int,
    pub open_shared: extern "C" fn(i32, *const i32, *const u64, usize, *mut u64) -> c_int,
    pub close_shared: extern "C" fn(u64) -> c_int,
}

//! Dropout descriptors: the real library's setter wants a handle, so what they were told is kept here.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use vramwise_workspaces::keys;

use super::sizes;
use crate::abi::put;

static RATES: Mutex<Option<FxHashMap<usize, f32>>> = Mutex::new(None);

/// Bytes of the random state of an H200: where no table says otherwise.
const STATES: u64 = 6_488_064;

fn remember(descriptor: usize, rate: f32) -> i32 {
    RATES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(descriptor, rate);
    0
}

/// Whether a dropout descriptor was told to drop anything.
pub(super) fn drops(descriptor: usize) -> bool {
    let rates = RATES.lock().unwrap_or_else(PoisonError::into_inner);
    rates.as_ref().and_then(|r| r.get(&descriptor)).is_some_and(|rate| *rate > 0.0)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDropoutGetStatesSize(_handle: usize, bytes: *mut usize) -> i32 {
    let measured = sizes::table().and_then(|t| t.get(keys::DROPOUT_STATES)?.first().copied());
    if measured.is_none() {
        sizes::guessed(keys::DROPOUT_STATES);
    }
    put(bytes, measured.unwrap_or(STATES) as usize);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetDropoutDescriptor(
    descriptor: usize,
    _handle: usize,
    rate: f32,
    _states: *mut c_void,
    _bytes: usize,
    _seed: u64,
) -> i32 {
    remember(descriptor, rate)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnRestoreDropoutDescriptor(
    descriptor: usize,
    _handle: usize,
    rate: f32,
    _states: *mut c_void,
    _bytes: usize,
    _seed: u64,
) -> i32 {
    remember(descriptor, rate)
}

//! Dropout: how many bytes its random state has, and which descriptors drop anything.

use std::ffi::c_void;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use vramwise_workspaces::keys;

use crate::real::real;
use crate::record::state;

type Pointer = *mut c_void;

static RATES: Mutex<Option<FxHashMap<u64, f32>>> = Mutex::new(None);

fn remember(descriptor: Pointer, rate: f32) {
    let mut rates = RATES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    rates.get_or_insert_default().insert(descriptor as u64, rate);
}

/// Whether a dropout descriptor was told to drop anything.
pub(crate) fn drops(descriptor: Pointer) -> bool {
    let rates = RATES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    rates.as_ref().and_then(|r| r.get(&(descriptor as u64))).is_some_and(|rate| *rate > 0.0)
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDropoutGetStatesSize(handle: Pointer, bytes: *mut usize) -> i32 {
    let status = real!(c"cudnnDropoutGetStatesSize"(handle => Pointer, bytes => *mut usize));
    if status == 0 && !bytes.is_null() {
        // SAFETY: the library has just written it.
        let size = unsafe { *bytes };
        state().size(keys::DROPOUT_STATES.to_owned(), vec![size as u64]);
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetDropoutDescriptor(
    descriptor: Pointer,
    handle: Pointer,
    rate: f32,
    states: Pointer,
    bytes: usize,
    seed: u64,
) -> i32 {
    remember(descriptor, rate);
    real!(c"cudnnSetDropoutDescriptor"(
        descriptor => Pointer, handle => Pointer, rate => f32, states => Pointer, bytes => usize, seed => u64
    ))
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnRestoreDropoutDescriptor(
    descriptor: Pointer,
    handle: Pointer,
    rate: f32,
    states: Pointer,
    bytes: usize,
    seed: u64,
) -> i32 {
    remember(descriptor, rate);
    real!(c"cudnnRestoreDropoutDescriptor"(
        descriptor => Pointer, handle => Pointer, rate => f32, states => Pointer, bytes => usize, seed => u64
    ))
}

//! The backend interface: descriptors, and the execution of plans.

use std::ffi::c_void;

use vramwise_workspaces::{Value, attribute, kind};

use crate::real::real;
use crate::record::{Plan, state};

type Descriptor = *mut c_void;

const TYPE_INT64: i32 = 3;
const TYPE_KNOB: i32 = 9;
const TYPE_DESCRIPTOR: i32 = 15;

fn real_create(kind: i32, descriptor: *mut Descriptor) -> i32 {
    real!(c"cudnnBackendCreateDescriptor"(kind => i32, descriptor => *mut Descriptor))
}

fn real_destroy(descriptor: Descriptor) -> i32 {
    real!(c"cudnnBackendDestroyDescriptor"(descriptor => Descriptor))
}

fn real_get(
    from: Descriptor,
    name: i32,
    kind: i32,
    wanted: i64,
    count: *mut i64,
    to: *mut c_void,
) -> i32 {
    real!(c"cudnnBackendGetAttribute"(
        from => Descriptor, name => i32, kind => i32, wanted => i64, count => *mut i64, to => *mut c_void
    ))
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(
    kind: i32,
    descriptor: *mut Descriptor,
) -> i32 {
    let status = real_create(kind, descriptor);
    if status == 0 && !descriptor.is_null() {
        // SAFETY: the library has just written it.
        let made = unsafe { *descriptor };
        state().tracker.create(made as u64, kind);
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Descriptor) -> i32 {
    state().destroyed(descriptor as u64);
    real_destroy(descriptor)
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Descriptor,
    name: i32,
    kind: i32,
    count: i64,
    elements: *const c_void,
) -> i32 {
    let status = real!(c"cudnnBackendSetAttribute"(
        descriptor => Descriptor, name => i32, kind => i32, count => i64, elements => *const c_void
    ));
    let size = vramwise_workspaces::element_size(kind).unwrap_or(0);
    if status == 0 && size > 0 && count >= 0 && !elements.is_null() {
        // SAFETY: the library has accepted the array: it has `count` elements of this type.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.cast::<u8>(), count as usize * size) };
        let mut state = state();
        if kind == TYPE_DESCRIPTOR {
            let children: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).collect();
            state.tracker.set_descriptors(descriptor as u64, name, &children);
            if name == attribute::PLAN_CONFIG {
                state.config_of_plan(descriptor as u64, children.first().copied().unwrap_or(0));
            }
        } else if let Some(value) = Value::from_bytes(kind, count, bytes) {
            state.tracker.set(descriptor as u64, name, value);
        }
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Descriptor,
    name: i32,
    kind: i32,
    wanted: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> i32 {
    let status = real_get(descriptor, name, kind, wanted, count, elements);
    let derived = kind == TYPE_DESCRIPTOR && !elements.is_null() && wanted > 0;
    if status == 0
        && derived
        && matches!(name, attribute::HEURISTIC_RESULTS | attribute::CONFIG_ENGINE)
    {
        // SAFETY: the caller's array has `wanted` descriptors.
        let children =
            unsafe { std::slice::from_raw_parts(elements.cast::<u64>(), wanted as usize) };
        let mut state = state();
        for child in children {
            state.tracker.derive(*child, descriptor as u64);
        }
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendFinalize(descriptor: Descriptor) -> i32 {
    let status = real!(c"cudnnBackendFinalize"(descriptor => Descriptor));
    let address = descriptor as u64;
    let (is_plan, config) = {
        let mut state = state();
        if status == 0 {
            state.tracker.finalize(address);
        }
        (state.tracker.kind(address) == Some(kind::PLAN), state.take_config(address))
    };
    if is_plan {
        // Making plans is no matter of the device: others may run meanwhile.
        crate::turn::end();
        let workspace = if status == 0 { workspace_of(descriptor) } else { 0 };
        let (engine, knobs) = describe(config as Descriptor);
        state().plan_finalized(address, Plan { status, workspace, engine, knobs });
    }
    status
}

/// cuDNN's function of this name.
///
/// # Safety
/// As cuDNN documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendExecute(
    handle: *mut c_void,
    plan: Descriptor,
    pack: Descriptor,
) -> i32 {
    crate::turn::begin();
    let status = real!(c"cudnnBackendExecute"(handle => *mut c_void, plan => Descriptor, pack => Descriptor));
    state().plan_executed(plan as u64, status);
    status
}

fn number(from: Descriptor, name: i32, kind: i32) -> Option<i64> {
    let (mut value, mut count) = (0i64, 0i64);
    let status = real_get(from, name, kind, 1, &raw mut count, (&raw mut value).cast());
    (status == 0 && count == 1).then_some(value)
}

fn workspace_of(plan: Descriptor) -> u64 {
    number(plan, attribute::PLAN_WORKSPACE, TYPE_INT64)
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(0)
}

/// Engine and knobs of a configuration, as cuDNN tells them.
fn describe(config: Descriptor) -> (i64, String) {
    if config.is_null() {
        return (-1, String::new());
    }
    let mut index = -1;
    let mut engine: Descriptor = std::ptr::null_mut();
    if real_create(kind::ENGINE, &raw mut engine) == 0 {
        let mut count = 0i64;
        let to = (&raw mut engine).cast::<c_void>();
        if real_get(config, attribute::CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &raw mut count, to) == 0 {
            index = number(engine, attribute::ENGINE_INDEX, TYPE_INT64).unwrap_or(-1);
        }
        real_destroy(engine);
    }
    let mut choices: [Descriptor; 64] = [std::ptr::null_mut(); 64];
    let mut made = 0;
    while made < choices.len() && real_create(kind::KNOB_CHOICE, &raw mut choices[made]) == 0 {
        made += 1;
    }
    let mut count = 0i64;
    let to = choices.as_mut_ptr().cast::<c_void>();
    let status =
        real_get(config, attribute::CONFIG_KNOBS, TYPE_DESCRIPTOR, made as i64, &raw mut count, to);
    let mut knobs = Vec::new();
    if status == 0 {
        for choice in choices.iter().take(usize::try_from(count).unwrap_or(0).min(made)) {
            let name = number(*choice, attribute::KNOB_TYPE, TYPE_KNOB).unwrap_or(-1) & 0xffff_ffff;
            let value = number(*choice, attribute::KNOB_VALUE, TYPE_INT64).unwrap_or(-1);
            knobs.push(format!("{name}={value}"));
        }
    }
    for choice in choices.iter().take(made) {
        real_destroy(*choice);
    }
    (index, knobs.join(" "))
}

//! The backend interface: everything is described to the real library, and nothing runs.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use vramwise_workspaces::{Value, attribute, element_size, kind};

use super::plans::{Plans, Verdict};
use super::real::real;
use super::{settings, sizes};
use crate::abi::{self, get, put};
use crate::machine;

type Descriptor = *mut c_void;

const TYPE_INT64: i32 = 3;
const TYPE_DESCRIPTOR: i32 = 15;
const TYPE_CHAR: i32 = 24;

/// What a program with `torch.backends.cudnn.benchmark` should know.
const BENCHMARK: &str =
    "cudnn.benchmark keeps the fastest plan: two runs on a card can differ, and so can this one";

static PLANS: Mutex<Option<Plans>> = Mutex::new(None);

/// Acts on the state. Never while the real library runs: it may call back.
fn plans<T>(act: impl FnOnce(&mut Plans) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<Plans>> =
        PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    act(guard.get_or_insert_default())
}

fn real_create(kind: i32, descriptor: *mut Descriptor) -> i32 {
    real!(c"cudnnBackendCreateDescriptor"(kind => i32, descriptor => *mut Descriptor))
}

fn real_set(
    descriptor: Descriptor,
    name: i32,
    kind: i32,
    count: i64,
    elements: *const c_void,
) -> i32 {
    real!(c"cudnnBackendSetAttribute"(
        descriptor => Descriptor, name => i32, kind => i32, count => i64, elements => *const c_void
    ))
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

fn real_finalize(descriptor: Descriptor) -> i32 {
    real!(c"cudnnBackendFinalize"(descriptor => Descriptor))
}

/// The profile's description of the card, as terminated text.
fn description() -> Option<Vec<u8>> {
    let mut text = machine::lock().config.profile.cudnn_json.clone()?.into_bytes();
    text.push(0);
    Some(text)
}

/// The description of the emulated card, as cuDNN wants it where there is no device (9.8 and later).
fn device() -> Option<Descriptor> {
    static DEVICE: OnceLock<usize> = OnceLock::new();
    let found = *DEVICE.get_or_init(|| {
        let Some(text) = description() else {
            sizes::note("the device profile has no description for cuDNN: convolutions are not exact".to_owned());
            return 0;
        };
        let mut made: Descriptor = std::ptr::null_mut();
        let status = match real_create(kind::DEVICE_PROPERTIES, &raw mut made) {
            0 => {
                let count = text.len() as i64;
                match real_set(made, attribute::DEVICE_JSON, TYPE_CHAR, count, text.as_ptr().cast()) {
                    0 => real_finalize(made),
                    refused => refused,
                }
            }
            refused => refused,
        };
        if status == 0 {
            return made as usize;
        }
        let version = super::real::version();
        sizes::note(format!(
            "cuDNN {version} does not work without a device (status {status}; 9.8 and later do): only measured \
             convolutions are possible"
        ));
        0
    });
    (found != 0).then_some(found as Descriptor)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendCreateDescriptor(kind: i32, descriptor: *mut Descriptor) -> i32 {
    let status = real_create(kind, descriptor);
    let Some(made) = get(descriptor).filter(|_| status == 0) else { return status };
    plans(|p| p.tracker.create(made as u64, kind));
    if kind == kind::HEURISTIC
        && let Some(device) = device()
    {
        real_set(made, attribute::HEURISTIC_DEVICE, TYPE_DESCRIPTOR, 1, (&raw const device).cast());
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Descriptor) -> i32 {
    plans(|p| p.destroyed(descriptor as u64));
    real!(c"cudnnBackendDestroyDescriptor"(descriptor => Descriptor))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendSetAttribute(
    descriptor: Descriptor,
    name: i32,
    kind: i32,
    count: i64,
    elements: *const c_void,
) -> i32 {
    // A handle stands for a device; here its description does.
    if name == attribute::GRAPH_HANDLE {
        return 0;
    }
    if name == attribute::PLAN_HANDLE {
        return match device() {
            Some(device) => real_set(
                descriptor,
                attribute::PLAN_DEVICE,
                TYPE_DESCRIPTOR,
                1,
                (&raw const device).cast(),
            ),
            None => 0,
        };
    }
    // A device by its number is described as the card is.
    if name == attribute::DEVICE_ID
        && let Some(text) = description()
    {
        let count = text.len() as i64;
        return real_set(
            descriptor,
            attribute::DEVICE_JSON,
            TYPE_CHAR,
            count,
            text.as_ptr().cast(),
        );
    }
    let status = real_set(descriptor, name, kind, count, elements);
    let size = element_size(kind).unwrap_or(0);
    if status != 0 || size == 0 || elements.is_null() {
        return status;
    }
    // The library has accepted the array: it has `count` elements of this type.
    let bytes = abi::bytes(elements, usize::try_from(count).unwrap_or(0).saturating_mul(size));
    let address = descriptor as u64;
    plans(|p| {
        if kind == TYPE_DESCRIPTOR {
            let children: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).collect();
            p.tracker.set_descriptors(address, name, &children);
            if name == attribute::PLAN_CONFIG {
                p.config_of_plan(address, children.first().copied().unwrap_or(0));
            }
        } else if let Some(value) = Value::from_bytes(kind, count, &bytes) {
            p.tracker.set(address, name, value);
        }
    });
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendGetAttribute(
    descriptor: Descriptor,
    name: i32,
    kind: i32,
    wanted: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> i32 {
    if name == attribute::PLAN_WORKSPACE
        && let Some(bytes) = plans(|p| p.workspace(descriptor as u64))
    {
        put(count, 1);
        put(elements.cast(), bytes as i64);
        return 0;
    }
    let status = real_get(descriptor, name, kind, wanted, count, elements);
    let derived = matches!(name, attribute::HEURISTIC_RESULTS | attribute::CONFIG_ENGINE);
    if status == 0 && derived && kind == TYPE_DESCRIPTOR && !elements.is_null() {
        let bytes = abi::bytes(elements, usize::try_from(wanted).unwrap_or(0).saturating_mul(8));
        plans(|p| {
            for child in bytes.as_chunks::<8>().0 {
                p.tracker.derive(u64::from_ne_bytes(*child), descriptor as u64);
            }
        });
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: Descriptor) -> i32 {
    let address = descriptor as u64;
    let (is_plan, config) =
        plans(|p| (p.tracker.kind(address) == Some(kind::PLAN), p.config(address)));
    if is_plan {
        let engine = engine_of(config as Descriptor);
        let table = sizes::table();
        let (verdict, seen) = plans(|p| p.decide(address, engine, settings::choice, table));
        if let Some(seen) = seen {
            sizes::convolution(&seen);
        }
        if plans(|p| p.is_benchmark(address)) {
            sizes::note(BENCHMARK.to_owned());
        }
        if verdict == Verdict::Taken {
            return 0;
        }
    }
    let status = real_finalize(descriptor);
    if status == 0 {
        plans(|p| if is_plan { p.finalized(address) } else { p.tracker.finalize(address) });
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(_handle: usize, plan: Descriptor, _pack: Descriptor) -> i32 {
    super::compute(plans(|p| p.duration(plan as u64)))
}

/// The engine of a configuration, as cuDNN numbers it; -1 where it does not say.
fn engine_of(config: Descriptor) -> i64 {
    let mut engine: Descriptor = std::ptr::null_mut();
    if config.is_null() || real_create(kind::ENGINE, &raw mut engine) != 0 {
        return -1;
    }
    let (mut index, mut count) = (-1i64, 0i64);
    let to = (&raw mut engine).cast::<c_void>();
    if real_get(config, attribute::CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &raw mut count, to) == 0 {
        real_get(
            engine,
            attribute::ENGINE_INDEX,
            TYPE_INT64,
            1,
            &raw mut count,
            (&raw mut index).cast(),
        );
    }
    real!(c"cudnnBackendDestroyDescriptor"(engine => Descriptor));
    index
}

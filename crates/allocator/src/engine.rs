//! The heaps of this process, and which of them an address belongs to.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vramwise_arena::{Change, Device, Heap, Params};
use vramwise_cuda::{CudaDevice, Driver};

use crate::settings;
use crate::table::{self, Hooks};

/// As many devices as PyTorch can number.
pub(crate) const DEVICES: usize = 128;

/// Addresses are told apart by their upper bits: heaps reserve whole, aligned GiB.
const OWNER_SHIFT: u32 = 30;
const OWNERS: usize = 1 << (47 - OWNER_SHIFT);

type Slot = OnceLock<Mutex<Heap<CudaDevice>>>;

static HEAPS: [Slot; DEVICES] = [const { OnceLock::new() }; DEVICES];
/// 1 + device, by GiB.
static OWNER: [AtomicU8; OWNERS] = [const { AtomicU8::new(0) }; OWNERS];
static COUNT: AtomicI32 = AtomicI32::new(0);
/// Set in a child that was forked: the driver can't be used there.
static FORKED: AtomicBool = AtomicBool::new(false);
static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
/// Settings for heaps that do not exist yet; the last is for all devices.
static WANTED: Mutex<[Option<Wanted>; DEVICES + 1]> = Mutex::new([const { None }; DEVICES + 1]);
static HOOKS: Mutex<Option<SharedHooks>> = Mutex::new(None);
static WATCHED: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Debug)]
struct Wanted {
    params: Params,
    fraction: Option<f64>,
}

#[derive(Clone, Copy)]
struct SharedHooks(Hooks);

// SAFETY: the front promises that its hooks may be called from any thread.
unsafe impl Send for SharedHooks {}

/// Locks, whatever became of the thread that held it last: a panic ends the process, so it can't have left half a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a heap that another thread works with is tried before the thread sleeps. The other one is done within a
/// fraction of a microsecond unless it misses; falling asleep and being woken costs several.
const TRIES: u32 = 10;
/// Pauses between two tries at most; a pause is 10 to 40 ns.
const PAUSES: u32 = 16;

/// As [`lock`], for a lock that is mostly held for a very short time.
#[inline]
pub(crate) fn lock_heap(mutex: &Mutex<Heap<CudaDevice>>) -> MutexGuard<'_, Heap<CudaDevice>> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(_) => lock_busy(mutex),
    }
}

#[cold]
fn lock_busy(mutex: &Mutex<Heap<CudaDevice>>) -> MutexGuard<'_, Heap<CudaDevice>> {
    for attempt in 0..TRIES {
        for _ in 0..PAUSES.min(1 << attempt) {
            std::hint::spin_loop();
        }
        if let Ok(guard) = mutex.try_lock() {
            return guard;
        }
    }
    lock(mutex)
}

pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// CUDA is up, with this many devices. Heaps are made on first use, so that no context appears on a device that is not used.
pub(crate) fn start(devices: i32) -> Result<(), String> {
    if COUNT.load(Ordering::Acquire) > 0 {
        return Ok(());
    }
    let driver = Driver::load().map_err(|e| e.to_string())?;
    if DRIVER.set(Arc::new(driver)).is_ok() {
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    COUNT.store(devices.clamp(0, DEVICES as i32), Ordering::Release);
    Ok(())
}

fn own(device: i32, base: u64, bytes: u64) {
    let first = (base >> OWNER_SHIFT) as usize;
    let last = ((base + bytes - 1) >> OWNER_SHIFT) as usize;
    for owner in OWNER.iter().take(last + 1).skip(first) {
        owner.store(device as u8 + 1, Ordering::Release);
    }
}

/// The device whose heap has an address.
#[inline]
pub(crate) fn owner(address: u64) -> Option<i32> {
    let owner = OWNER.get((address >> OWNER_SHIFT) as usize)?.load(Ordering::Acquire);
    (owner > 0).then(|| i32::from(owner) - 1)
}

/// A device's heap, if it was used already.
#[inline]
pub(crate) fn existing(device: i32) -> Option<&'static Mutex<Heap<CudaDevice>>> {
    HEAPS.get(usize::try_from(device).ok()?)?.get()
}

/// A device's heap, made on first use.
#[inline]
pub(crate) fn heap(device: i32) -> Result<&'static Mutex<Heap<CudaDevice>>, String> {
    match existing(device) {
        Some(heap) => Ok(heap),
        None => make(device),
    }
}

#[cold]
fn make(device: i32) -> Result<&'static Mutex<Heap<CudaDevice>>, String> {
    let count = COUNT.load(Ordering::Acquire);
    let driver = DRIVER.get().ok_or("CUDA is not up yet")?;
    if !(0..count).contains(&device) {
        return Err(format!("there is no device {device}; this process has {count}"));
    }
    // Held while the heap is made, so that settings can't slip in between.
    let wanted = lock(&WANTED);
    let cuda = CudaDevice::new(Arc::clone(driver), device, own).map_err(|e| e.to_string())?;
    let total = cuda.total();
    let mut params = Params::default();
    for wanted in [&wanted[DEVICES], &wanted[device as usize]].into_iter().flatten() {
        params = wanted.params;
        apply_fraction(&mut params, wanted.fraction, total);
    }
    let mut heap = Heap::new(cuda, params);
    heap.watch_changes(WATCHED.load(Ordering::Relaxed));
    Ok(HEAPS[device as usize].get_or_init(|| Mutex::new(heap)))
}

fn apply_fraction(params: &mut Params, fraction: Option<f64>, total: u64) {
    if let Some(fraction) = fraction {
        params.limit = (fraction < 1.0).then_some((total as f64 * fraction) as u64);
    }
}

/// Instead of a device: the text is only checked.
const CHECK_ONLY: i32 = -2;

/// Changes settings of a device, or of all (-1), now or when its heap is made. What has no meaning here, for the user.
pub(crate) fn set_settings(device: i32, text: &str) -> Result<String, String> {
    if device == CHECK_ONLY {
        return Ok(remark(&settings::parse(text, Params::default(), None)?));
    }
    let mut wanted = lock(&WANTED);
    let index = match usize::try_from(device) {
        Ok(index) if index < DEVICES => index,
        Err(_) if device == -1 => DEVICES,
        _ => return Err(format!("there is no device {device}")),
    };
    let base = wanted[index].as_ref().or(wanted[DEVICES].as_ref());
    let (before, share) = base.map_or_else(Default::default, |w| (w.params, w.fraction));
    let change = settings::parse(text, before, share)?;
    for (at, slot) in HEAPS.iter().enumerate().filter(|(at, _)| index == DEVICES || *at == index) {
        if let Some(heap) = slot.get() {
            let mut heap = lock(heap);
            let settings::Change { mut params, fraction, .. } =
                settings::parse(text, *heap.params(), None)?;
            let total = heap.device().total();
            apply_fraction(&mut params, fraction, total);
            heap.set_params(params);
        } else if index == DEVICES && wanted[at].is_some() {
            let (now, share) =
                wanted[at].as_ref().map_or_else(Default::default, |w| (w.params, w.fraction));
            let settings::Change { params, fraction, .. } = settings::parse(text, now, share)?;
            wanted[at] = Some(Wanted { params, fraction });
        }
    }
    wanted[index] = Some(Wanted { params: change.params, fraction: change.fraction });
    Ok(remark(&change))
}

/// Names the options that have no meaning here; empty if there are none.
fn remark(change: &settings::Change) -> String {
    if change.ignored.is_empty() {
        return String::new();
    }
    format!("without meaning for this allocator: {}", change.ignored.join("; "))
}

/// The settings in force, or those that a heap will be made with.
pub(crate) fn settings(device: i32) -> String {
    if let Some(heap) = existing(device) {
        return settings::print(lock(heap).params(), None);
    }
    let wanted = lock(&WANTED);
    let own = usize::try_from(device).ok().and_then(|d| wanted.get(d)).and_then(Option::as_ref);
    let (params, share) =
        own.or(wanted[DEVICES].as_ref()).map_or_else(Default::default, |w| (w.params, w.fraction));
    settings::print(&params, share)
}

/// Tells changes to the front from now on; `None` = no more.
pub(crate) fn set_hooks(hooks: Option<Hooks>) {
    *lock(&HOOKS) = hooks.map(SharedHooks);
    WATCHED.store(hooks.is_some(), Ordering::Relaxed);
    for heap in HEAPS.iter().filter_map(OnceLock::get) {
        lock(heap).watch_changes(hooks.is_some());
    }
}

/// Tells the front what happened; the heap's lock is held.
#[cold]
pub(crate) fn tell(device: i32, heap: &mut Heap<CudaDevice>) {
    let hooks = *lock(&HOOKS);
    for change in heap.take_changes() {
        let Some(SharedHooks(hooks)) = hooks else { continue };
        // SAFETY: the functions and the context are the front's, which promised that they may be called here.
        unsafe {
            match change {
                Change::Mapped(range) | Change::Unmapped(range) => {
                    if let Some(segment) = hooks.segment {
                        let mapped = matches!(change, Change::Mapped(_));
                        segment(hooks.context, &table::Segment::new(device, &range), mapped.into());
                    }
                }
                Change::Completed(block) => {
                    if let Some(completed) = hooks.free_completed {
                        completed(hooks.context, &table::Block::new(device, &block));
                    }
                }
            }
        }
    }
}

//! Mappings that are taken away in the background.
//!
//! Taking an old mapping away costs the driver about 27 µs a handle, and nobody waits for it: the addresses are free
//! for the heap's book-keeping as soon as it has said so. A thread does it. Only two things must not overtake it: a new
//! mapping at the same addresses, and the question how much memory is free, as memory goes back to the device with its
//! last mapping.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;

/// First byte and length.
type Range = (u64, u64);
/// Takes a mapping away; `false` = the driver refuses.
type Unmap = dyn Fn(Range) -> bool + Send + Sync;

/// The process is ending: nothing is begun in the background any more.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The process whose threads they are; a forked child has none of them.
static OWNER: AtomicU32 = AtomicU32::new(0);
static WORKERS: Mutex<Vec<(Arc<Shared>, JoinHandle<()>)>> = Mutex::new(Vec::new());

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Range>,
    /// What the thread is taking away now.
    current: Option<Range>,
    /// What it could not take away.
    refused: Vec<Range>,
}

/// The mappings of one device that nobody needs any more.
pub(crate) struct Later {
    unmap: Arc<Unmap>,
    shared: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Later").field("started", &self.shared.is_some()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

impl Later {
    pub(crate) fn new(unmap: impl Fn(Range) -> bool + Send + Sync + 'static) -> Self {
        Self { unmap: Arc::new(unmap), shared: None }
    }

    /// Takes a mapping away some time, or at once where there is no thread to do it.
    pub(crate) fn push(&mut self, range: Range) -> bool {
        if ENDING.load(Ordering::Acquire) || (self.shared.is_none() && !self.start()) {
            return (self.unmap)(range);
        }
        if let Some(shared) = &self.shared {
            lock(&shared.state).queue.push_back(range);
            shared.changed.notify_all();
        }
        true
    }

    /// Makes sure that nothing is mapped at these addresses any more; `false` = something is, and the driver keeps it.
    pub(crate) fn clear(&self, range: Range) -> bool {
        let Some(shared) = &self.shared else { return true };
        let mut state = lock(&shared.state);
        while state.current.is_some_and(|current| overlap(current, range)) {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let State { queue, refused, .. } = &mut *state;
        let mut mine: Vec<Range> = Vec::new();
        mine.extend(queue.iter().chain(&*refused).filter(|other| overlap(**other, range)));
        queue.retain(|other| !overlap(*other, range));
        refused.retain(|other| !overlap(*other, range));
        drop(state);
        let stuck: Vec<Range> =
            mine.into_iter().filter(|mapping| !(self.unmap)(*mapping)).collect();
        let all = stuck.is_empty();
        if !all {
            lock(&shared.state).refused.extend(stuck);
        }
        all
    }

    /// Waits until everything is done that was begun.
    pub(crate) fn finish(&self) {
        let Some(shared) = &self.shared else { return };
        loop {
            let mut state = lock(&shared.state);
            // The caller helps, from the other end.
            let Some(range) = state.queue.pop_back() else {
                while state.current.is_some() {
                    state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                return;
            };
            drop(state);
            if !(self.unmap)(range) {
                lock(&shared.state).refused.push(range);
            }
        }
    }

    /// Starts the thread; `false` = the system gives none.
    fn start(&mut self) -> bool {
        let shared = Arc::new(Shared::default());
        let (theirs, unmap) = (Arc::clone(&shared), Arc::clone(&self.unmap));
        let thread = std::thread::Builder::new()
            .name("vramwise-unmap".to_owned())
            .spawn(move || work(&theirs, &*unmap));
        let Ok(thread) = thread else { return false };
        lock(&WORKERS).push((Arc::clone(&shared), thread));
        self.shared = Some(shared);
        OWNER.store(std::process::id(), Ordering::Release);
        static AT_EXIT: Once = Once::new();
        // The driver closes down in a handler of its own, which was registered before: this one runs first.
        // SAFETY: a function without arguments that does not unwind.
        AT_EXIT.call_once(|| unsafe {
            libc::atexit(end);
        });
        true
    }
}

fn work(shared: &Shared, unmap: &Unmap) {
    let mut state = lock(&shared.state);
    while !ENDING.load(Ordering::Acquire) {
        let Some(range) = state.queue.pop_front() else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.current = Some(range);
        drop(state);
        let done = unmap(range);
        state = lock(&shared.state);
        state.current = None;
        if !done {
            state.refused.push(range);
        }
        shared.changed.notify_all();
    }
}

/// Stops all threads. What is left goes with the process.
extern "C" fn end() {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    ENDING.store(true, Ordering::Release);
    for (shared, thread) in std::mem::take(&mut *lock(&WORKERS)) {
        // With the lock held no thread is between its look at the flag and its sleep.
        drop(lock(&shared.state));
        shared.changed.notify_all();
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    /// Mappings that take a moment to go, by first byte; some are refused at first.
    fn device(refusals: u64) -> (Later, Arc<Mutex<Vec<Range>>>) {
        let gone = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&gone);
        let refused = AtomicU64::new(0);
        let later = Later::new(move |range| {
            std::thread::sleep(Duration::from_millis(1));
            if refused.fetch_add(1, Ordering::SeqCst) < refusals {
                return false;
            }
            lock(&theirs).push(range);
            true
        });
        (later, gone)
    }

    #[test]
    fn everything_goes_once() {
        let (mut later, gone) = device(0);
        let all: Vec<Range> = (0..40).map(|i| (i * 10, 10)).collect();
        for range in &all {
            assert!(later.push(*range));
        }
        later.finish();
        let mut gone = lock(&gone).clone();
        gone.sort_unstable();
        assert_eq!(gone, all);
    }

    #[test]
    fn addresses_are_clear_before_they_are_mapped_again() {
        let (mut later, gone) = device(0);
        for i in 0..30 {
            assert!(later.push((i * 10, 10)));
        }
        // Halfway into one mapping and into the next.
        assert!(later.clear((155, 10)));
        let seen = lock(&gone).clone();
        assert!(seen.contains(&(150, 10)) && seen.contains(&(160, 10)), "{seen:?}");
        later.finish();
        assert_eq!(lock(&gone).len(), 30);
    }

    #[test]
    fn what_the_driver_refuses_is_tried_again_and_told() {
        let (mut later, gone) = device(2);
        assert!(later.push((0, 10)));
        later.finish();
        while lock(&later.shared.as_ref().unwrap().state).refused.is_empty() {
            std::thread::yield_now();
        }
        assert!(!later.clear((0, 10)), "refused a second time");
        assert!(later.clear((0, 10)));
        assert_eq!(*lock(&gone), [(0, 10)]);
        assert!(later.clear((0, 10)), "nothing is left there");
    }

    #[test]
    fn what_was_never_begun_needs_no_thread() {
        let (later, _) = device(0);
        assert!(later.clear((0, 10)));
        later.finish();
        assert!(later.shared.is_none());
    }
}

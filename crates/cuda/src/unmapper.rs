//! Old mappings are taken away on a thread of their own.
//!
//! A mapping that nobody uses any more costs nothing while it stays, and 17 to 27 µs of the caller's time when it is
//! taken away. The H200's driver (580.159) answers error 999 where one thread maps in a reservation while another takes
//! a mapping away there; so one lock is held around all such calls, and the thread works only while the others have
//! made none for a while: it would slow down the request that needs memory now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::costs::Cost;
use crate::driver::Code;

/// The thread waits until no call was made for this long.
const QUIET: Duration = Duration::from_micros(300);
/// As many old mappings wait at most; beyond that each caller takes some away itself.
const MOST: usize = 8192;
/// How often the lock is tried before the caller sleeps: the thread holds it for one call.
const TRIES: u32 = 2000;

/// Takes the mapping of a range (address, bytes) away.
type Unmap = Box<dyn Fn(u64, u64) -> Code + Send + Sync>;

/// Ranges whose mappings are no longer needed, and the thread that takes them away.
pub(crate) struct Unmapper(Arc<Shared>);

struct Shared {
    unmap: Unmap,
    quiet: Duration,
    state: Mutex<State>,
    work: Condvar,
    /// The process is ending: the driver is left alone.
    ended: AtomicBool,
}

struct State {
    /// Bytes by address.
    ranges: BTreeMap<u64, u64>,
    /// Those that the driver refused to take away.
    stuck: BTreeMap<u64, u64>,
    thread: Thread,
    /// When the lock was last held for a caller.
    last: Instant,
    /// What the thread's calls came to.
    cost: Cost,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    NotYet,
    Runs,
    /// It could not be started: callers do the work.
    Never,
}

/// All of this process, for its end.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Stops the threads; from now on old mappings stay. To be called before the driver is taken down.
pub fn stop_unmapping() {
    for shared in lock(&ALL).iter().filter_map(Weak::upgrade) {
        shared.ended.store(true, Ordering::Release);
        // A call that runs is waited for, but not for ever: its thread may be gone already.
        for _ in 0..100 {
            if shared.state.try_lock().is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Unmapper {
    pub(crate) fn new(unmap: Unmap) -> Self {
        Self::with_quiet(unmap, QUIET)
    }

    fn with_quiet(unmap: Unmap, quiet: Duration) -> Self {
        let shared = Arc::new(Shared {
            unmap,
            quiet,
            state: Mutex::new(State {
                ranges: BTreeMap::new(),
                stuck: BTreeMap::new(),
                thread: Thread::NotYet,
                last: Instant::now(),
                cost: Cost::default(),
            }),
            work: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        lock(&ALL).push(Arc::downgrade(&shared));
        Self(shared)
    }

    /// Runs a call that maps, unmaps, creates or makes usable, with no other one at the same time.
    pub(crate) fn alone<T>(&self, call: impl FnOnce() -> T) -> T {
        let mut state = self.0.lock();
        let result = call();
        state.last = Instant::now();
        result
    }

    /// As [`Unmapper::alone`], where mappings in a range have to be gone first.
    ///
    /// # Errors
    ///
    /// What the driver says if it doesn't take one away.
    pub(crate) fn alone_at(
        &self,
        addr: u64,
        bytes: u64,
        call: impl FnOnce() -> Code,
    ) -> Result<(), Code> {
        let mut state = self.0.lock();
        let result = self.0.clear(&mut state, addr, bytes).and_then(|()| succeeded(call()));
        state.last = Instant::now();
        result
    }

    /// A mapping (one whole handle's) is needed no more. It is gone soon, at the latest after [`Unmapper::finish`].
    pub(crate) fn later(&self, addr: u64, bytes: u64) {
        let mut state = self.0.lock();
        state.ranges.insert(addr, bytes);
        if state.thread == Thread::NotYet {
            state.thread = self.spawn();
        }
        let most = if state.thread == Thread::Runs { MOST } else { 0 };
        while state.ranges.len() > most {
            self.0.take_one(&mut state);
        }
        state.last = Instant::now();
        self.0.work.notify_one();
    }

    /// Whether mappings are there that should be gone.
    pub(crate) fn has_work(&self) -> bool {
        let state = self.0.lock();
        !state.ranges.is_empty() || !state.stuck.is_empty()
    }

    /// Takes away all that waits.
    pub(crate) fn finish(&self) {
        let mut state = self.0.lock();
        let stuck = std::mem::take(&mut state.stuck);
        state.ranges.extend(stuck);
        while self.0.take_one(&mut state) {}
    }

    /// What the thread's calls came to.
    pub(crate) fn cost(&self) -> Cost {
        self.0.lock().cost
    }

    fn spawn(&self) -> Thread {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("vramwise-unmap".into());
        match thread.spawn(move || serve(&shared)) {
            Ok(_) => Thread::Runs,
            Err(_) => Thread::Never,
        }
    }
}

impl Drop for Unmapper {
    fn drop(&mut self) {
        self.finish();
        let state = self.0.lock();
        self.0.ended.store(true, Ordering::Release);
        drop(state);
        self.0.work.notify_one();
    }
}

impl std::fmt::Debug for Unmapper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unmapper")
    }
}

impl Shared {
    /// Sleeping and being woken costs more than the one call for which the thread holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        for _ in 0..TRIES {
            if let Ok(state) = self.state.try_lock() {
                return state;
            }
            std::hint::spin_loop();
        }
        lock(&self.state)
    }

    /// Takes one mapping away; `false` = none waits, or the process ends.
    fn take_one(&self, state: &mut State) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        let Some((addr, bytes)) = state.ranges.pop_first() else { return false };
        if (self.unmap)(addr, bytes) != 0 {
            state.stuck.insert(addr, bytes);
        }
        true
    }

    /// Takes away what waits in a range.
    fn clear(&self, state: &mut State, addr: u64, bytes: u64) -> Result<(), Code> {
        for ranges in [&mut state.ranges, &mut state.stuck] {
            while let Some((start, length)) = last_below(ranges, addr + bytes) {
                if start + length <= addr {
                    break;
                }
                succeeded((self.unmap)(start, length))?;
                ranges.remove(&start);
            }
        }
        Ok(())
    }
}

fn last_below(ranges: &BTreeMap<u64, u64>, end: u64) -> Option<(u64, u64)> {
    ranges.range(..end).next_back().map(|(start, length)| (*start, *length))
}

fn succeeded(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The thread. It ends with the unmapper or the process.
fn serve(shared: &Shared) {
    let mut state = lock(&shared.state);
    while !shared.ended.load(Ordering::Acquire) {
        let since = state.last.elapsed();
        if state.ranges.is_empty() {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        } else if since < shared.quiet {
            drop(state);
            std::thread::sleep(shared.quiet.saturating_sub(since));
            state = lock(&shared.state);
        } else {
            let start = Instant::now();
            shared.take_one(&mut state);
            state.cost.add(start.elapsed());
            // Whoever wants the lock shall get it.
            drop(state);
            std::thread::yield_now();
            state = lock(&shared.state);
        }
    }
}

#[cfg(test)]
#[path = "unmapper_tests.rs"]
mod tests;

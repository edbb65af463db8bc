//! Turns on the device: several processes make plans at once, and only one of them times its plans.

use std::ffi::{CStr, CString, c_char};
use std::sync::Mutex;

#[derive(Default)]
struct Turn {
    /// File to lock from the first execution until the next mark; none if turns do not matter.
    file: Option<CString>,
    held: Option<i32>,
}

static TURN: Mutex<Turn> = Mutex::new(Turn { file: None, held: None });

/// From now on, executions wait until no other process is between its first execution and its next mark. `file` is
/// what the processes lock; null ends it.
///
/// # Safety
/// `file` is null or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramwise_probe_take_turns(file: *const c_char) {
    let mut turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: not null here, and terminated, as the caller promises.
    turn.file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) }.to_owned());
}

/// Something is about to run.
pub(crate) fn begin() {
    let mut turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if turn.held.is_some() {
        return;
    }
    let Some(file) = turn.file.clone() else { return };
    // SAFETY: a terminated path; the descriptor is used here only.
    let descriptor =
        unsafe { libc::open(file.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o644) };
    if descriptor >= 0 {
        // SAFETY: an open descriptor.
        unsafe { libc::flock(descriptor, libc::LOCK_EX) };
        turn.held = Some(descriptor);
    }
}

/// The next process may run.
pub(crate) fn end() {
    let held = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner).held.take();
    if let Some(descriptor) = held {
        // SAFETY: opened in `begin`, and taken out, so that it is closed once; closing unlocks.
        unsafe { libc::close(descriptor) };
    }
}

//! What a program reads back from the card: every small copy to the host, written down in order, so that a rehearsal
//! elsewhere can answer the same (`rehearse --values`).
//!
//! The runtime's functions of these names come here first and are passed on unchanged. A copy that may still be on its
//! way is waited for, which changes when things happen and not what.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use vramwise_values::{Line, SMALL_COPY, claim};

use crate::runtime::runtime;

/// Names the log of the first process; without it nothing is written.
const VARIABLE: &str = "VRAMWISE_PROBE_VALUES";
/// `cudaMemcpyDeviceToHost`, `cudaMemcpyDefault`.
const TO_HOST: c_int = 2;
const BY_ADDRESS: c_int = 4;

/// The log of a process.
struct Log {
    /// The process that opened it: what a fork brought along is the parent's.
    process: u32,
    file: Option<File>,
    next: u64,
}

static LOG: Mutex<Log> = Mutex::new(Log { process: 0, file: None, next: 0 });

fn base() -> Option<&'static Path> {
    static BASE: OnceLock<Option<PathBuf>> = OnceLock::new();
    BASE.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from)).as_deref()
}

impl Log {
    /// Writes a line. A disk that is full ends the log, not the program.
    fn write(&mut self, base: &Path, bytes: &[u8]) {
        let process = std::process::id();
        if self.process != process {
            let rank = std::env::var("RANK").map_or(String::new(), |rank| format!("rank-{rank}"));
            let file = claim(base, &rank, true)
                .and_then(|path| File::create(path).map_err(|error| error.to_string()));
            *self = Self { process, file: file.ok(), next: 0 };
        }
        let line = Line::new(self.next, bytes, true);
        self.next += 1;
        let failed =
            self.file.as_mut().is_some_and(|f| f.write_all(line.text().as_bytes()).is_err());
        if failed {
            self.file = None;
        }
    }
}

/// Whether a copy of `bytes` bytes goes to the host and is one of those that are written down.
fn is_read(from: *const c_void, bytes: usize, kind: c_int) -> bool {
    let to_host = kind == TO_HOST || kind == BY_ADDRESS && is_on_device(from);
    bytes > 0 && bytes <= SMALL_COPY && base().is_some() && to_host
}

/// Where an address lies: `cudaPointerAttributes` begins with the kind of memory, 2 being a device's.
fn is_on_device(address: *const c_void) -> bool {
    let mut attributes = [0_u64; 16];
    let to: *mut c_void = attributes.as_mut_ptr().cast();
    let status = runtime!(c"cudaPointerGetAttributes"(to => *mut c_void, address => *const c_void));
    status == 0 && attributes[0] & 0xffff_ffff == 2
}

/// Writes down what a copy gave, when it is there. While a graph is captured nothing is: those read as zeros, as they do
/// in a rehearsal.
fn note(to: *const c_void, bytes: usize, stream: Option<usize>) {
    let Some(base) = base() else { return };
    let mut capturing: c_int = 0;
    if let Some(stream) = stream {
        let at: *mut c_int = &raw mut capturing;
        runtime!(c"cudaStreamIsCapturing"(stream => usize, at => *mut c_int));
        if capturing == 0 && runtime!(c"cudaStreamSynchronize"(stream => usize)) != 0 {
            return;
        }
    }
    let mut found = vec![0_u8; bytes];
    if capturing == 0 {
        // SAFETY: the copy that the caller asked for wrote these bytes, and has ended.
        unsafe { std::ptr::copy_nonoverlapping(to.cast::<u8>(), found.as_mut_ptr(), bytes) };
    }
    LOG.lock().unwrap_or_else(PoisonError::into_inner).write(base, &found);
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) -> c_int {
    let read = is_read(from, bytes, kind);
    let status = runtime!(c"cudaMemcpy"(
        to => *mut c_void, from => *const c_void, bytes => usize, kind => c_int
    ));
    if read && status == 0 {
        note(to, bytes, None);
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    let read = is_read(from, bytes, kind);
    let status = runtime!(c"cudaMemcpyAsync"(
        to => *mut c_void, from => *const c_void, bytes => usize, kind => c_int, stream => usize
    ));
    if read && status == 0 {
        note(to, bytes, Some(stream));
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    // A rehearsal reads row by row.
    let read = width.checked_mul(height).is_some_and(|bytes| is_read(from, bytes, kind));
    let status = runtime!(c"cudaMemcpy2DAsync"(
        to => *mut c_void, to_pitch => usize, from => *const c_void, from_pitch => usize,
        width => usize, height => usize, kind => c_int, stream => usize
    ));
    if read && status == 0 {
        for row in 0..height {
            note(to.wrapping_byte_add(row * to_pitch), width, Some(stream));
        }
    }
    status
}

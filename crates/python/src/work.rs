//! Long work beside Python: other threads of the interpreter go on, and Ctrl-C ends the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use vramwise_cli::embed::Failure;

use crate::errors::exception;

/// How long a signal may have to wait. Work that ends sooner is not delayed by it.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own. When a signal's handler raises, the call ends with that exception at once;
/// the thread is told to stop, and what it still comes to is dropped. It holds nothing of Python's.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::sync_channel(1);
    let theirs = Arc::clone(&stop);
    thread::Builder::new().name("vramwise".to_owned()).spawn(move || {
        // The threads of rayon's own pool do not survive a fork, after which a call that uses them would wait for
        // ever; those of a pool of this call cannot be lost.
        let done = match rayon::ThreadPoolBuilder::new().build() {
            Ok(pool) => pool.install(|| work(theirs)),
            Err(_) => work(theirs),
        };
        // Nobody listens any more where the call was interrupted.
        let _ = sender.send(done);
    })?;
    // A receiver belongs to one thread, which is this one all the time; the lock is for the compiler.
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let received = py.detach(|| match receiver.lock() {
            Ok(receiver) => receiver.recv_timeout(PATIENCE),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        match received {
            Ok(result) => return result.map_err(|failure| exception(py, &failure)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "vramwise failed inside; please report it with the lines on standard error",
                ));
            }
        }
    }
}

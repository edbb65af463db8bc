//! Where a session lies: a directory that the user named, or one among the temporary files, which goes with the
//! session unless somebody was told of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::child;
use crate::error::RehearsalError;

/// The temporary ones that nobody was told of.
static UNTOLD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn untold() -> MutexGuard<'static, Vec<PathBuf>> {
    UNTOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    /// Whether it stays when this is dropped.
    stays: AtomicBool,
}

impl Room {
    /// One that the user named.
    pub(crate) fn given(path: PathBuf) -> Self {
        Self { path, stays: AtomicBool::new(true) }
    }

    /// A new one among the temporary files. A signal that ends this process takes it along.
    pub(crate) fn temporary() -> Result<Self, RehearsalError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = std::env::temp_dir();
        child::end_tidily().map_err(|error| RehearsalError::io("make", &root, error))?;
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("vramwise-rehearsal-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    untold().push(path.clone());
                    return Ok(Self { path, stays: AtomicBool::new(false) });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RehearsalError::io("make", path, error)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Somebody is told of it: it stays.
    pub(crate) fn keep(&self) {
        self.stays.store(true, Ordering::Relaxed);
        untold().retain(|path| *path != self.path);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.stays.load(Ordering::Relaxed) {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir_all(&self.path);
            untold().retain(|path| *path != self.path);
        }
    }
}

/// Removes all that nobody was told of: this process is about to end.
pub(crate) fn remove_untold() {
    for path in untold().drain(..) {
        // What cannot be removed does no harm.
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_one_goes_unless_it_is_kept_and_a_named_one_stays() {
        let gone = Room::temporary().unwrap();
        let place = gone.path().to_owned();
        assert!(place.is_dir() && untold().contains(&place));
        drop(gone);
        assert!(!place.exists() && !untold().contains(&place));
        let kept = Room::temporary().unwrap();
        let place = kept.path().to_owned();
        kept.keep();
        assert!(!untold().contains(&place));
        drop(kept);
        assert!(place.is_dir());
        drop(Room::given(place.clone()));
        assert!(place.is_dir());
        fs::remove_dir(place).unwrap();
    }

    /// Names the file in which the process that is signalled tells its directory.
    #[cfg(unix)]
    const CHILD: &str = "VRAMWISE_TEST_ROOM";

    #[cfg(unix)]
    #[test]
    fn a_signal_takes_it_along() {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(told) = std::env::var_os(CHILD) {
            let room = Room::temporary().unwrap();
            fs::write(told, room.path().as_os_str().as_encoded_bytes()).unwrap();
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        let room = Room::temporary().unwrap();
        let told = room.path().join("told");
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "room::tests::a_signal_takes_it_along"]).env(CHILD, &told);
        let output = again.env("TMPDIR", room.path()).output().unwrap();
        assert_eq!(output.status.signal(), Some(15), "{output:?}");
        let place = fs::read_to_string(told).unwrap();
        assert!(Path::new(&place).starts_with(room.path()), "{place}");
        assert!(!Path::new(&place).exists(), "{place}");
    }
}

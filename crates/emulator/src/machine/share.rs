//! Physical memory that is handed to another process: a descriptor of a small file that says which memory it is.
//!
//! The descriptor travels as any other does (`SCM_RIGHTS`, `pidfd_getfd`, a fork). What is behind it is not shared:
//! in the process that it comes to, the memory is new address space, which takes nothing of that process's card.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Begins the file, so that no other file is taken for one.
const MAGIC: &[u8; 16] = b"vramwise memory\n";
const LENGTH: usize = MAGIC.len() + 4 * 8;

/// Names physical memory in all processes: the process that made it, and which of its own it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) [u64; 2]);

impl Identity {
    /// One that no other memory has.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The process's number may come again; the time at which it named its first memory does not.
        static START: AtomicU64 = AtomicU64::new(0);
        let process = u64::from(std::process::id());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(1, |now| now.as_nanos() as u64 | 1);
        let start = START.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let start = start.map_or_else(|was| was, |_| now);
        Self([process << 32 | COUNT.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff, start])
    }
}

/// What a descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) device: u64,
    pub(crate) bytes: u64,
}

impl Shared {
    /// A new descriptor, which the caller owns.
    pub(crate) fn export(&self) -> std::io::Result<RawFd> {
        // SAFETY: a terminated constant name; the descriptor is checked before it is used.
        let fd = unsafe { libc::memfd_create(c"vramwise-memory".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let mut file = unsafe { File::from_raw_fd(fd) };
        let [first, second] = self.identity.0;
        let mut text = MAGIC.to_vec();
        for word in [first, second, self.device, self.bytes] {
            text.extend(word.to_ne_bytes());
        }
        file.write_all(&text)?;
        Ok(file.into_raw_fd())
    }

    /// What a descriptor says that came from anywhere; it stays open. `None` for one that is no memory.
    pub(crate) fn import(fd: RawFd) -> Option<Self> {
        if fd < 0 {
            return None;
        }
        // SAFETY: only read from, and handed back unclosed; a number that is no descriptor fails the read.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        debug_assert_eq!(file.as_raw_fd(), fd);
        let mut text = [0; LENGTH];
        file.read_exact_at(&mut text, 0).ok()?;
        let words = text.strip_prefix(MAGIC.as_slice())?.as_chunks::<8>().0;
        let [first, second, device, bytes] = <[[u8; 8]; 4]>::try_from(words).ok()?;
        let number = u64::from_ne_bytes;
        Some(Self {
            identity: Identity([number(first), number(second)]),
            device: number(device),
            bytes: number(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_says_which_memory_it_is_and_other_files_say_nothing() {
        let shared = Shared { identity: Identity::new(), device: 1, bytes: 2 << 20 };
        let fd = shared.export().unwrap();
        assert_eq!(Shared::import(fd), Some(shared));
        assert_eq!(Shared::import(fd), Some(shared), "as often as one likes");
        // SAFETY: exported above and closed once.
        drop(unsafe { File::from_raw_fd(fd) });
        assert_eq!(Shared::import(fd), None);
        assert_eq!(Shared::import(-1), None);
        let other = File::open("/proc/self/exe").unwrap();
        assert_eq!(Shared::import(other.as_raw_fd()), None);
        assert_ne!(Identity::new(), Identity::new());
    }
}

//! Host address space that stands for device memory: committed only where it is touched.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// More cards than any machine has.
pub(crate) const MAX_DEVICES: usize = 16;
/// Address space of one device, bytes: more than any card has, for fragmentation of addresses. Below what stands for the
/// upper end of the process's there is room for chunks that it has none for.
pub(crate) const SLICE: u64 = 3 << 40;
/// Where the process's address space ends, and how far down chunks are taken from it.
pub(crate) const CHUNKS_END: u64 = 0x8000_0000_0000;
pub(crate) const CHUNKS_BEGIN: u64 = CHUNKS_END - (2 << 40);
/// Where the first device's addresses begin: below where Linux puts programs (0x5555_…) and libraries (0x7…).
const BASE: u64 = 0x2000_0000_0000;
/// Where reservations of virtual memory may be put: rising, as seen on an H200.
const RESERVATIONS: u64 = 0x1000_0000_0000;
const RESERVATIONS_END: u64 = BASE;

/// End of a device's addresses.
pub(crate) fn slice_end(device: usize) -> u64 {
    BASE + (device as u64 + 1) * SLICE
}

/// Whether an address is one that this emulator gave for device memory.
pub(crate) fn is_device_address(addr: u64) -> bool {
    (RESERVATIONS..BASE + MAX_DEVICES as u64 * SLICE).contains(&addr)
}

fn map(addr: u64, bytes: u64) -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let Ok(length) = usize::try_from(bytes) else { return false };
    // SAFETY: a new anonymous mapping that replaces nothing (MAP_FIXED_NOREPLACE).
    let at = unsafe {
        libc::mmap(addr as *mut c_void, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the range was mapped above and belongs to us. Huge pages would commit 2 MiB for a byte; a
    // core dump of address space is of no use.
    unsafe {
        libc::madvise(at, length, libc::MADV_NOHUGEPAGE);
        libc::madvise(at, length, libc::MADV_DONTDUMP);
    }
    at as u64 == addr
}

/// Whether device memory is memory of this process. Where the system forbids so much address space, addresses are all
/// there is: what is written goes nowhere, and what is read is zero.
static BACKED: AtomicBool = AtomicBool::new(true);

/// Whether an address can be read and written: any but a device's where device memory is not backed.
pub(crate) fn is_backed(addr: u64) -> bool {
    BACKED.load(Ordering::Relaxed) || !is_device_address(addr)
}

/// Maps the address space of all devices.
pub(crate) fn map_devices() -> Result<(), String> {
    if map(BASE, MAX_DEVICES as u64 * SLICE) {
        return Ok(());
    }
    let why = std::io::Error::last_os_error();
    BACKED.store(false, Ordering::Relaxed);
    Err(format!(
        "{} TiB of address space cannot be mapped ({why}): device memory holds no values, all are zero",
        (MAX_DEVICES as u64 * SLICE) >> 40,
    ))
}

/// Address space for a reservation at or above `next`; the address, or `None` where there is none.
pub(crate) fn map_reservation(next: &mut u64, bytes: u64) -> Option<u64> {
    let step = 32 << 20;
    let mut at = (*next).max(RESERVATIONS);
    while at.checked_add(bytes)? <= RESERVATIONS_END {
        if !BACKED.load(Ordering::Relaxed) || map(at, bytes) {
            *next = (at + bytes).next_multiple_of(step);
            return Some(at);
        }
        at += step;
    }
    None
}

/// What the driver's chunks are multiples of, bytes.
const CHUNK: u64 = 32 << 20;
/// Where Linux puts the dynamic loader, and from there downwards all else, unless it puts it somewhere else at random.
const LOADER: u64 = 0x7fff_f7fc_6000;

/// The system puts large mappings at multiples of a huge page, bytes.
const HUGE_PAGE: u64 = 2 << 20;

/// How far the system has moved this process's mappings, in whole huge pages: the same program gets the same places
/// relative to it.
pub(super) fn moved() -> u64 {
    static MOVED: OnceLock<u64> = OnceLock::new();
    *MOVED.get_or_init(|| {
        // SAFETY: it reads a number that the system left for the process.
        let loader = unsafe { libc::getauxval(libc::AT_BASE) };
        LOADER.wrapping_sub(loader).wrapping_add(HUGE_PAGE / 2) / HUGE_PAGE * HUGE_PAGE
    })
}

/// Bytes of a page of the host.
pub(super) const HOST_PAGE: u64 = 4096;

/// Takes addresses for a chunk of the driver's from what the process has free, as the driver does: it asks the system for
/// 32 MiB less a page more than it needs, wherever there is room, and keeps the uppermost part that is aligned (found from
/// addresses on an H200; with a length in whole huge pages a gap of just that size would be passed over).
///
/// Nothing lies there: the addresses of device memory are others in the same order. What is aligned is counted from where
/// the loader is, so that it does not depend on chance. `None` where the system gives nothing, or not at the usual end.
pub(crate) fn take_chunk(bytes: u64) -> Option<u64> {
    let asked = bytes.checked_add(CHUNK - HOST_PAGE)?;
    let low = map_anywhere(asked)?.wrapping_add(moved());
    let high = low.wrapping_add(asked);
    let start = low.wrapping_add(CHUNK - HOST_PAGE) / CHUNK * CHUNK;
    give_back_chunk(low, start.wrapping_sub(low));
    give_back_chunk(start.wrapping_add(bytes), high.wrapping_sub(start).wrapping_sub(bytes));
    if !(CHUNKS_BEGIN..CHUNKS_END - bytes).contains(&start) {
        give_back_chunk(start, bytes);
        return None;
    }
    Some(start)
}

/// Returns such addresses.
pub(crate) fn give_back_chunk(start: u64, bytes: u64) {
    give_back(start.wrapping_sub(moved()), bytes);
}

/// Maps what cannot be touched where the system likes; the address, or `None` where it refuses.
pub(super) fn map_anywhere(bytes: u64) -> Option<u64> {
    let length = usize::try_from(bytes).ok()?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the system's choice, which cannot be touched.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at as u64)
}

/// Unmaps a part of what [`map_anywhere`] has mapped.
pub(super) fn give_back(at: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the range is part of what `map_anywhere` mapped, and nothing is kept there.
        unsafe { libc::munmap(at as *mut c_void, bytes as usize) };
    }
}

/// Drops a reservation's address space.
pub(crate) fn unmap(addr: u64, bytes: u64) {
    if !BACKED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the range was mapped by `map_reservation` and its owner is done with it.
    unsafe { libc::munmap(addr as *mut c_void, bytes as usize) };
}

/// Gives the committed pages of a device range back: it reads as zeros again.
pub(crate) fn forget(addr: u64, bytes: u64) {
    let (start, end) = (addr.next_multiple_of(HOST_PAGE), (addr + bytes) / HOST_PAGE * HOST_PAGE);
    if start < end && is_backed(addr) {
        // SAFETY: whole pages inside device memory of ours; private anonymous pages become zeros.
        unsafe { libc::madvise(start as *mut c_void, (end - start) as usize, libc::MADV_DONTNEED) };
    }
}

/// Makes a range of the host's memory read as zeros, without committing more than its first and last page.
pub(crate) fn clear_host(addr: u64, bytes: u64) {
    let end = addr.saturating_add(bytes);
    let first = addr.next_multiple_of(HOST_PAGE).min(end);
    let last = (end / HOST_PAGE * HOST_PAGE).max(addr);
    if addr == 0 || first >= last {
        crate::abi::fill(addr as *mut c_void, 0, bytes as usize);
        return;
    }
    crate::abi::fill(addr as *mut c_void, 0, (first - addr) as usize);
    crate::abi::fill(last as *mut c_void, 0, (end - last) as usize);
    let length = (last - first) as usize;
    // SAFETY: whole pages of a range that the caller wants overwritten; private anonymous pages become zeros.
    let given_back = unsafe { libc::madvise(first as *mut c_void, length, libc::MADV_DONTNEED) };
    if given_back != 0 {
        crate::abi::fill(first as *mut c_void, 0, length);
    }
}

/// Major version of the CUDA runtime that the process has loaded: 12 or 13; 13 where there is none.
pub(crate) fn loaded_runtime_major() -> u32 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if maps.contains("libcudart.so.12") { 12 } else { 13 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks lie below one another, as the system puts what it maps, and come back whole.
    #[test]
    fn chunks_are_taken_from_what_the_process_has_free() {
        let taken: Vec<u64> = (0..8).filter_map(|_| take_chunk(2 * CHUNK)).collect();
        assert_eq!(taken.len(), 8);
        assert!(taken.iter().all(|at| at % CHUNK == 0));
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 2 * CHUNK));
        // What has come back serves again, or what lies higher: the highest gap comes first.
        let low = sorted[3];
        give_back_chunk(low, 2 * CHUNK);
        let again = take_chunk(CHUNK).unwrap_or(0);
        assert!(again > low, "{again:x} {low:x}");
        give_back_chunk(again, CHUNK);
        let taken = taken.into_iter().filter(|at| *at != low).collect::<Vec<_>>();
        taken.iter().for_each(|at| give_back_chunk(*at, 2 * CHUNK));
        assert_eq!(take_chunk(u64::MAX), None);
    }
}

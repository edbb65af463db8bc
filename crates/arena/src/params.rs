//! What can be chosen, with the measurement behind each default.

/// Bytes that blocks are rounded up to. PyTorch promises its callers 512-byte alignment; packing tighter gains
/// nothing (less than 0.001 % of a gigabyte program) and would break kernels that rely on it.
pub const UNIT: u64 = 512;

/// Bytes of a page: the granularity of the driver's virtual memory calls on every card since Pascal.
pub(crate) const PAGE: u64 = 2 << 20;
/// Units in a page.
pub(crate) const PAGE_UNITS: u32 = (PAGE / UNIT) as u32;

/// The choices of a heap. Figures are the ratio R of memory held to memory in use, from replays of recorded programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    // R is from replays of 85 recorded programs above 1 GiB, each from six starting addresses, as one block more at the start
    // shifts R by up to 0.005: 5 recorded on an H200, 11 on the emulated device, 21 runs of mixtures of experts, whose routing
    // differs, and 48 of random sizes. "Runs above" are those of the 510 that hold more than 1.015. Times are of calls to the
    // driver in 18 programs, of which 14 have first steps, modelled: what a call takes on an H200 times how many there are.
    /// Requests of the default pool below this many bytes go to a region of their own, so that a small block that
    /// lives long pins 2 MiB and not the large handle under a big one. Costs a page or two a stream; changes R by
    /// less than 0.002 on most training programs and from 1.95 to 1.00 where small blocks outlive big ones. 64 / 128 /
    /// 256 KiB: 2 / 0 / 3 runs above.
    pub small_below: u64,
    /// New memory is created without looking for pages to recycle while memory held stays below live × (1 + slack).
    /// 0 / 0.5 / 1 / 2 % come to 1.008 / 1.008 / 1.010 / 1.019 on average over random sizes and to 1,929 / 1,859 / 1,761 / 1,557 ms;
    /// 3 / 5 / 0 / 447 runs above.
    pub slack: f64,
    /// A new handle is at most memory held / this. Mapping costs 35 to 60 µs a handle whatever its size, so large handles
    /// pay. 128 / 160 / 192 / 256 come to 522 / 542 / 586 / 630 ms in first steps; 18 / 11 / 0 / 2 runs above.
    pub handle_share: u64,
    /// A new handle may have this share of the request all the same. 128 / 192 / 256 / no share come to 1,705 / 1,761 / 1,834 /
    /// 1,941 ms; 2 / 0 / 0 / 0 runs above.
    pub request_share: u64,
    /// A new handle is at most memory held / this while sizes change: a block that ends within a handle pins the rest of it.
    /// 1,024 / 1,536 / 2,048 / 4,096 come to 1,661 / 1,761 / 1,803 / 1,826 ms; 7 / 0 / 0 / 0 runs above.
    pub fine_share: u64,
    /// Sizes count as changing while more than this share of the memory for the last misses was recycled. 3 / 4 / 5 / 7 % come to
    /// 1,809 / 1,761 / 1,710 / 1,621 ms; 1 / 0 / 10 / 16 runs above. That only the last misses count, up to what is held, saves
    /// 6 % of the time in calls against counting since the start, and 19 % early on.
    pub varied: f64,
    /// Requests of whole pages begin at a page while more than this share of the memory for the last misses was recycled. 0 / 0.5 /
    /// 1 / 2 % / never: 1 / 0 / 3 / 13 / 36 runs above, at 1.039 at most if never. From the start it is worse on small
    /// programs: 1.070 instead of 1.054 on a generation of 754 MiB.
    pub aligned: f64,
    /// A new handle has at most this many bytes (a power of two). 32 / 64 / 128 MiB come to 1,776 / 1,761 / 1,761 ms; none above.
    pub handle_cap: u64,
    /// Physical memory that the heap may hold, in bytes; `None` = what the device has.
    pub limit: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            small_below: 128 << 10,
            slack: 0.01,
            handle_share: 192,
            request_share: 192,
            fine_share: 1536,
            varied: 0.04,
            aligned: 0.005,
            handle_cap: 64 << 20,
            limit: None,
        }
    }
}

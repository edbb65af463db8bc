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
    /// Requests of the default pool below this many bytes go to a region of their own, so that a small block that
    /// lives long pins 2 MiB and not the large handle under a big one. Costs a page or two a stream; changes R by
    /// less than 0.002 on most training programs and from 1.95 to 1.00 where small blocks outlive big ones. 64 / 128 /
    /// 256 KiB come to 1.013 / 1.015 / 1.016 on a mixture of experts whose routing is uniform, the worst of 20 programs.
    pub small_below: u64,
    // Below, R is from replays of 9 recorded programs, 13 programs on the emulated device and 48 of random sizes, all above
    // 1 GiB, each from six starting addresses: one block more at the start shifts R by up to 0.005. "Runs above" are those of
    // the 420 that hold more than 1.015. Times are of calls to the driver, modelled: what a call takes on an H200 times how
    // many there are.
    /// New memory is created without looking for pages to recycle while memory held stays below live × (1 + slack).
    /// 0 / 0.5 / 1 / 2 % come to 1.008 / 1.008 / 1.010 / 1.019 on average over random sizes and to 1,680 / 1,582 / 1,495 / 1,403 ms
    /// on the emulated programs; 4 / 10 / 4 / 345 runs above.
    pub slack: f64,
    /// A new handle is at most memory held / this. Mapping costs 35 to 60 µs a handle whatever its size, so large handles
    /// pay. 128 / 192 / 256 come to 193 / 224 / 250 ms in the first steps of six models; 11 / 4 / 5 runs above.
    pub handle_share: u64,
    /// A new handle may have this share of the request all the same. 128 / 192 / 256 / no share come to 768 / 813 / 851 / 981 ms
    /// over the recorded programs; 10 / 4 / 3 / 3 runs above.
    pub request_share: u64,
    /// A new handle is at most memory held / this while sizes change: a block that ends within a handle pins the rest of it.
    /// 1,024 / 1,536 / 2,048 / 4,096 come to 1,338 / 1,428 / 1,495 / 1,714 ms on the emulated programs; 12 / 4 / 4 / 2 runs above.
    pub fine_share: u64,
    /// Sizes count as changing while more than this share of the memory for the last misses was recycled. 5 / 7 / 8 / 10 % come to
    /// 1,589 / 1,495 / 1,466 / 1,401 ms on the emulated programs; 3 / 4 / 4 / 12 runs above. That only the last misses count, up to
    /// what is held, saves 6 % of the time in calls against counting since the start, and 19 % early on.
    pub varied: f64,
    /// A new handle has at most this many bytes (a power of two). 32 / 64 / 128 MiB: 2 / 4 / 5 runs above.
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
            fine_share: 2048,
            varied: 0.07,
            handle_cap: 64 << 20,
            limit: None,
        }
    }
}

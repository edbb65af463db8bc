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
    /// New memory is created without looking for pages to recycle while memory held stays below live × (1 + slack).
    /// 0 / 1 / 2 / 5 % give a mean R of 1.019 / 1.020 / 1.025 / 1.041; 1 % stops most steady recycling.
    pub slack: f64,
    /// A new handle is at most memory held / this. Mapping costs about 25 µs a handle whatever its size, so large
    /// handles pay. 128 / 256 / 512 come to 1.011 / 1.010 / 1.010 and 628 / 829 / 1,109 calls on a ResNet-50.
    pub handle_share: u64,
    /// The same while more than a tenth of the memory for the last misses was recycled: sizes change then, and a block
    /// that ends within a handle pins the rest of it. 512 / 1,024 / 2,048 / 4,096 come to at most 1.020 / 1.0153 / 1.0149 /
    /// 1.0149 on a mixture of experts. That only the last misses count, up to what is held, saves 6 % of the time in calls
    /// to the driver against counting since the start, and 19 % early on, over 50 programs with the same mean R of 1.011;
    /// half as many misses or an eighth instead of a tenth save as much again and cost 1.016 to 1.019 on one or two of them.
    pub fine_share: u64,
    /// Above this share of recycled pages among those of the last misses sizes count as changing.
    pub varied: f64,
    /// A new handle may have this many bytes however little is held, until sizes turn out to change.
    pub handle_floor: u64,
    /// A new handle has at most this many bytes (a power of two).
    pub handle_cap: u64,
    /// Physical memory that the heap may hold, in bytes; `None` = what the device has.
    pub limit: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            small_below: 128 << 10,
            slack: 0.01,
            handle_share: 256,
            fine_share: 2048,
            varied: 0.1,
            handle_floor: 2 << 20,
            handle_cap: 64 << 20,
            limit: None,
        }
    }
}

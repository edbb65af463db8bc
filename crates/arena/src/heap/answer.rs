//! What the heap tells.

use std::fmt;

/// A pool, by PyTorch's pair of numbers (`MempoolId_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pool of everything that is not asked for inside a private pool.
    pub const DEFAULT: Self = Self(0, 0);
}

/// A block just handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its first byte; a multiple of 512.
    pub address: u64,
    /// What it occupies: the request rounded up to 512.
    pub size: u64,
    /// Whether it lies in a region for small blocks.
    pub small: bool,
}

/// Whether a block is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Mapped and free.
    Free,
    /// Handed out.
    Live,
    /// Freed; other streams' work on it is not done.
    Pending,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its first byte.
    pub address: u64,
    /// Bytes that it occupies.
    pub size: u64,
    /// Bytes asked for; 0 if it is free.
    pub requested: u64,
    /// The stream that it belongs to.
    pub stream: u64,
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// Whether it lies in a region for small blocks.
    pub small: bool,
    /// Whether it is in use.
    pub state: BlockState,
}

/// A longest run of mapped addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of live blocks.
    pub allocated: u64,
    /// Bytes of live and pending blocks.
    pub active: u64,
    /// Bytes asked for by live blocks.
    pub requested: u64,
    /// The stream that its blocks belong to.
    pub stream: u64,
    /// Index of the pool, as [`PoolId`].
    pub pool: (u64, u64),
    /// Whether it is a region for small blocks.
    pub small: bool,
}

/// A live block of a saved state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its first byte.
    pub address: u64,
    /// Bytes that it occupies.
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Its stream.
    pub stream: u64,
}

/// Something that happened below the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Memory was mapped at these addresses.
    Mapped(SegmentInfo),
    /// Memory was taken away from these addresses.
    Unmapped(SegmentInfo),
    /// A block that waited for other streams is free.
    Completed(BlockInfo),
}

/// What a message about missing memory needs. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Free, as the driver says.
    pub free: u64,
    /// The card's total.
    pub total: u64,
    /// What this heap may hold.
    pub limit: u64,
    /// What it holds.
    pub held: u64,
    /// In live blocks.
    pub allocated: u64,
    /// In blocks that wait for other streams.
    pub pending: u64,
    /// Mapped in private pools.
    pub private: u64,
    /// The largest free block of the regions that the request may use.
    pub largest_free: u64,
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// Physical memory or the limit does not suffice.
    OutOfMemory,
    /// No addresses are left.
    OutOfAddresses,
    /// The pool was never made.
    UnknownPool,
    /// The driver's error code.
    Driver(i32),
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => write!(f, "out of memory"),
            Self::OutOfAddresses => write!(f, "no address space left"),
            Self::UnknownPool => write!(f, "unknown pool"),
            Self::Driver(code) => write!(f, "the driver answered with error {code}"),
        }
    }
}

impl std::error::Error for AllocError {}

//! The drop-in allocator's decisions, without a driver: a page-recycling arena over pooled physical memory.
//!
//! A [`Heap`] is the memory of one device. It reserves addresses generously and backs them with physical *handles*
//! (multiples of 2 MiB) only where blocks lie. Blocks are packed at 512 bytes. Where a request fits nowhere, pages
//! that are wholly free elsewhere are mapped a second time where the request goes, before new memory is created;
//! their old mapping is taken away when the work that was queued there is done. So the memory held stays close to
//! the memory in use, whatever the sizes.
//!
//! Blocks belong to the stream that they were asked for on; a [region](region) holds the blocks of one stream and
//! one pool. Only pages move between regions, and only in stream order.
//!
//! Everything that touches hardware goes through [`Device`]. There is no clock, no randomness and no hash order: the
//! same calls and the same answers give the same addresses.

mod bins;
mod block;
mod check;
mod device;
mod extent;
mod handles;
mod heap;
mod lately;
mod params;
mod region;
mod sim;
mod stats;

pub use check::Violation;
pub use device::{Device, Event, Failure, Handle};
pub use heap::{
    AllocError, Allocation, BlockInfo, BlockState, Change, Heap, PoolId, Saved, SegmentInfo,
    Shortage,
};
pub use params::{Params, UNIT};
pub use sim::{Calls, SimDevice};
pub use stats::{Class, Stat, Stats};

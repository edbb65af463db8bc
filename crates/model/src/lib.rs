//! PyTorch's CUDA caching allocator as a pure, deterministic state machine.
//!
//! [`Allocator`] makes the decisions that PyTorch's allocator makes, byte for byte: where a block goes,
//! when the device is asked, what every counter says and what the memory history records. It knows
//! nothing of files and reads no clock; hardware is behind [`device::Device`]. The rules and their
//! sources are in the specification, whose sections the code cites.
//!
//! ```
//! use vramwise_model::{Allocator, NoHistory, StreamIndex, ThreadId};
//! use vramwise_model::device::{DriverPlacement, SimDevice};
//! use vramwise_model::settings::Config;
//! use vramwise_types::TorchVersion;
//!
//! let device = SimDevice::new(1 << 30, DriverPlacement::default());
//! let mut allocator = Allocator::new(Config::default(), TorchVersion::REFERENCE, device);
//! let block = allocator
//!     .malloc(1_048_577, StreamIndex::DEFAULT, ThreadId(0), &mut NoHistory)
//!     .expect("1 GiB is enough");
//! assert_eq!(allocator.block_size(block), 1_049_088);
//! assert_eq!(allocator.reserved_bytes(), 20 << 20);
//! ```

#![forbid(unsafe_code)]

mod allocator;
mod block;
mod check;
pub mod device;
mod free_set;
mod history;
mod pool;
pub mod settings;
pub mod size;
mod state;
pub mod stats;
mod ties;

pub use allocator::{Allocator, Filter, MallocError, Restored, Scope, StreamIndex, ThreadId};
pub use block::BlockId;
pub use check::BrokenInvariant;
pub use history::{Entry, NoHistory, Recorder};
pub use pool::{PoolIndex, PoolOptions};
pub use state::{BlockState, BlockView, SegmentView};
pub use ties::TieRule;

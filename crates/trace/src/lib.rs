//! PyTorch memory snapshots and histories as columnar tables.
//!
//! A [`Snapshot`] is what `torch.cuda.memory._snapshot()` returns, of any PyTorch version or other
//! producer of the schema: the segments and blocks at one moment, and per device the history of
//! allocator events that led there.

#![forbid(unsafe_code)]

mod assemble;
mod columns;
mod error;
mod fields;
mod keys;
mod layouts;
mod read;
mod rows;
mod settings;
mod snapshot;
mod tables;
mod version;

pub use error::ReadError;
pub use read::{ReadOptions, read_path, read_reader, read_slice};
pub use snapshot::{
    Annotation, Block, BlockState, DeviceTrace, Events, Producer, RecordedSettings, Segment,
    SegmentKind, Snapshot, Warning,
};
pub use tables::{Frame, FrameId, StackId, StackTable, StringId, StringTable};

//! PyTorch memory snapshots and histories as columnar tables.
//!
//! A [`Snapshot`] is what `torch.cuda.memory._snapshot()` returns, of any PyTorch version or other
//! producer of the schema: the segments and blocks at one moment, and per device the history of
//! allocator events that led there.

mod snapshot;
mod tables;

pub use snapshot::{
    Annotation, Block, BlockState, DeviceTrace, Events, Producer, RecordedSettings, Segment,
    SegmentKind, Snapshot, Warning,
};
pub use tables::{Frame, FrameId, StackId, StackTable, StringId, StringTable};

//! PyTorch memory snapshots and histories as columnar tables.
//!
//! A [`Snapshot`] is what `torch.cuda.memory._snapshot()` returns, of any PyTorch version or other
//! producer of the schema: the segments and blocks at one moment, and per device the history of
//! allocator events that led there.

#![forbid(unsafe_code)]

mod assemble;
mod check;
mod columns;
mod describe;
mod error;
mod fields;
mod finish;
mod gather;
mod history;
mod html;
mod inputs;
mod json;
mod keys;
mod layouts;
mod place;
mod plan;
mod rank_name;
mod read;
mod recorder;
mod row_list;
mod row_types;
mod rows;
mod settings;
mod snapshot;
mod sniff;
mod tables;
mod unpack;
mod version;
mod write;

pub use describe::{Description, DeviceDescription, Replayable, describe};
pub use error::ReadError;
pub use history::HistoryFacts;
pub use inputs::{list_inputs, list_inputs_below, list_logs, list_logs_below};
pub use rank_name::RankName;
pub use read::{
    LogOrSnapshot, ReadOptions, read_log_or_snapshot, read_path, read_reader, read_slice,
};
pub use snapshot::{
    Annotation, Block, BlockState, DeviceTrace, Events, Producer, RecordedSettings, RecorderNote,
    Segment, SegmentKind, SettingsBefore, SettingsChanges, Snapshot, Warning,
};
pub use tables::{Frame, FrameId, StackId, StackTable, StringId, StringTable};
pub use write::{write_json, write_pickle};

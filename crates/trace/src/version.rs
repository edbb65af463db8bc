//! Which PyTorch wrote a file, and whether it was PyTorch at all, as far as the schema tells.

use vramwise_pickle::{Tables, Value};
use vramwise_types::TorchVersion;

use crate::keys::{Key, Kind};
use crate::settings;
use crate::snapshot::Snapshot;

/// What of the schema a file uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    /// The top level is a list of segments.
    pub(crate) bare_list: bool,
    pub(crate) has_traces: bool,
    pub(crate) has_annotations: bool,
    /// Segments without types and sizes, as PyTorch makes from a profiler run.
    pub(crate) profiler_made: bool,
    /// The settings variable, where it is another one than PyTorch's for CUDA.
    pub(crate) foreign_conf: Option<String>,
    has_settings: bool,
    capture_reuse: bool,
    host_memory: bool,
    compile_context: bool,
    user_metadata: bool,
    of_2026: bool,
    round_threshold: bool,
    expandable: bool,
    pub(crate) block_history: bool,
    times: bool,
}

impl Schema {
    pub(crate) fn note_settings(&mut self, value: Value, tables: &Tables) {
        for (key, _) in tables.pairs(value).into_iter().flatten() {
            match tables.str(key) {
                Some("graph_capture_record_stream_reuse") => self.capture_reuse = true,
                Some("max_round_threshold") => self.round_threshold = true,
                Some(
                    "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF",
                ) => {
                    self.has_settings = true;
                }
                Some(key) if settings::is_conf(key) => self.foreign_conf = Some(key.to_owned()),
                _ => {}
            }
        }
    }

    pub(crate) fn note_top_key(&mut self, key: &str) {
        self.host_memory |= matches!(key, "host_segments" | "host_traces");
    }

    pub(crate) fn note_fields(&mut self, has: impl Fn(Kind, Key) -> bool) {
        self.compile_context = has(Kind::Event, Key::CompileContext);
        self.user_metadata = has(Kind::Event, Key::UserMetadata);
        self.of_2026 = has(Kind::Event, Key::PoolId) || has(Kind::Event, Key::InternalMetadata);
        self.times = has(Kind::Event, Key::TimeUs);
        self.expandable = has(Kind::Segment, Key::IsExpandable);
        self.block_history = has(Kind::Block, Key::History);
    }
}

/// The oldest release whose schema this is.
pub(crate) fn guess(schema: &Schema, snapshot: &Snapshot) -> Option<TorchVersion> {
    let nothing = snapshot.devices.iter().all(|d| d.segments.is_empty() && d.events.is_empty());
    let release = |minor| Some(TorchVersion::new(2, minor));
    if schema.host_memory {
        // Absent in 2.13.0, present in 2.15.0; the allocators in between do the same.
        release(14)
    } else if schema.round_threshold {
        release(13)
    } else if schema.of_2026 {
        release(12)
    } else if schema.user_metadata {
        release(11)
    } else if schema.compile_context || schema.capture_reuse {
        release(9)
    } else if schema.has_annotations {
        release(5)
    } else if schema.has_settings {
        release(3)
    } else if schema.expandable || schema.times {
        release(1)
    } else if schema.has_traces || schema.block_history {
        release(0)
    } else if nothing {
        None
    } else {
        Some(TorchVersion::new(1, 13))
    }
}

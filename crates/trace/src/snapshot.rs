//! The tables that a snapshot is read into.

use std::collections::BTreeMap;

use vramwise_types::{Action, TorchVersion};

use crate::tables::{StackId, StackTable, StringId, StringTable};

/// A memory snapshot: state and history of every device in the file.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// One entry per device, index = device number. Devices without segments and events are kept.
    pub devices: Vec<DeviceTrace>,
    /// `allocator_settings`, where the file has them.
    pub settings: Option<RecordedSettings>,
    /// `vramwise_recorder`, where vramwise's recorder wrote the file.
    pub recorder: Option<RecorderNote>,
    /// `external_annotations`.
    pub annotations: Vec<Annotation>,
    /// All strings of the file.
    pub strings: StringTable,
    /// All frames and stacks of the file.
    pub stacks: StackTable,
    /// Who wrote the file, as far as it can be told.
    pub producer: Producer,
    /// Oldest PyTorch whose schema this is (a guess from the keys that are present).
    pub version_guess: Option<TorchVersion>,
    /// Keys that this program does not know, with how often each occurred (`"block.color"` → 12).
    pub unknown_keys: BTreeMap<String, u64>,
    /// What the file lacks or what was odd in it.
    pub warnings: Vec<Warning>,
}

/// State and history of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrace {
    /// Segments at the moment of the snapshot, ascending by address.
    pub segments: Vec<Segment>,
    /// Blocks of all segments; a segment's blocks are contiguous here ([`Segment::blocks`]).
    pub blocks: Vec<Block>,
    /// The history, oldest first.
    pub events: Events,
    /// Whether vramwise's allocator made all this, in the place of PyTorch's: addresses are of its choosing.
    pub drop_in: bool,
}

impl DeviceTrace {
    /// The blocks of a segment of this device, in order of address.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        &self.blocks[segment.blocks.start as usize..segment.blocks.end as usize]
    }
}

/// The history as columns of equal length. Order is the file's order, which is authoritative.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// What happened.
    pub action: Vec<Action>,
    /// Address, 0 where the entry has none; for [`Action::Oom`] the driver's free bytes (`device_free`).
    pub addr: Vec<u64>,
    /// Bytes (see [`Action`] for which).
    pub size: Vec<u64>,
    /// Index into [`Events::streams`].
    pub stream: Vec<u32>,
    /// The distinct stream handles in order of appearance (0 is the default stream).
    pub streams: Vec<u64>,
    /// Unix time in microseconds; empty where the file has no times (PyTorch 2.0).
    pub time_us: Vec<u64>,
    /// Stack of the entry; empty where no entry of the device has one.
    pub stack: Vec<StackId>,
    /// `compile_context` where it is not `N/A`: (event, text), ascending.
    pub compile_context: Vec<(u32, StringId)>,
    /// `user_metadata` where it is not empty: (event, text), ascending.
    pub user_metadata: Vec<(u32, StringId)>,
    /// `pool_id` where entries carry one (2026 main): (event, id), ascending.
    pub pool_id: Vec<(u32, (u64, u64))>,
}

impl Events {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.action.len()
    }

    /// Whether there is no history.
    pub fn is_empty(&self) -> bool {
        self.action.is_empty()
    }

    /// The stream handle of entry `i`.
    pub fn stream_handle(&self, i: usize) -> u64 {
        self.streams[self.stream[i] as usize]
    }

    /// The stack of entry `i`.
    pub fn stack_of(&self, i: usize) -> StackId {
        self.stack.get(i).copied().unwrap_or(StackId::NONE)
    }
}

/// Which size class a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Requests of up to 1 MiB.
    Small,
    /// Everything above.
    Large,
}

/// A contiguous range of device memory held by the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub total_size: u64,
    /// Bytes in allocated blocks, as the file says.
    pub allocated_size: u64,
    /// Bytes in active blocks, as the file says.
    pub active_size: u64,
    /// Sum of the requested sizes of active blocks, as the file says.
    pub requested_size: u64,
    /// Stream handle.
    pub stream: u64,
    /// Size class.
    pub kind: SegmentKind,
    /// `segment_pool_id`; `(0, 0)` is the default pool.
    pub pool_id: (u64, u64),
    /// Whether this is a mapped run of an expandable segment.
    pub is_expandable: bool,
    /// Stack of its creation.
    pub stack: StackId,
    /// Range of [`DeviceTrace::blocks`].
    pub blocks: std::ops::Range<u32>,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte (computed where the file lacks it).
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Requested bytes; stale (or 0) for inactive blocks.
    pub requested_size: u64,
    /// What it is used for.
    pub state: BlockState,
    /// Stack of its allocation.
    pub stack: StackId,
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Handed out.
    ActiveAllocated,
    /// Given back, but another stream may still use it.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The name that PyTorch writes.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// One end of an annotation (`record_function` and user marks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Name.
    pub name: StringId,
    /// Whether this is the `START`.
    pub is_start: bool,
    /// Device, where it is known.
    pub device: Option<u32>,
    /// Unix time in microseconds.
    pub time_us: u64,
}

/// `allocator_settings`: the settings at the end of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedSettings {
    /// The settings string, verbatim (`PYTORCH_CUDA_ALLOC_CONF`).
    pub conf: String,
    /// Bytes; `None` = unlimited.
    pub max_split_size: Option<u64>,
    /// 0 = off.
    pub garbage_collection_threshold: f64,
    /// Whether expandable segments were on.
    pub expandable_segments: bool,
    /// Size class in MiB (as written: "1", "2", … "32768") → divisions.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
    /// Other keys with their value as text.
    pub other: Vec<(String, String)>,
}

/// What vramwise's allocator adds to the settings string in snapshots that it makes.
const DROP_IN: &str = "backend:vramwise";

impl RecordedSettings {
    /// Whether vramwise's allocator was in the place of PyTorch's.
    pub fn of_drop_in(&self) -> bool {
        self.conf.split(',').any(|option| option.trim() == DROP_IN)
    }

    /// The settings string as PyTorch's own allocator would have got it.
    pub fn conf_of_pytorch(&self) -> String {
        let options = self.conf.split(',').filter(|option| option.trim() != DROP_IN);
        options.collect::<Vec<_>>().join(",")
    }
}

/// What vramwise's recorder says of a file that it wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecorderNote {
    /// The last steps whose allocations have stacks, as its marks number them; `None` where all have.
    pub steps_with_stacks: Option<Vec<u64>>,
    /// Changes of the allocator's settings in mid-run; `None` where there were none.
    pub settings: Option<SettingsChanges>,
}

/// Settings that the program changed while it was recorded. `allocator_settings` of the file are the last ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChanges {
    /// What was in force before the first change.
    pub before: SettingsBefore,
    /// When each change was made (Unix time in microseconds), and the string that was set; in order of time.
    pub changes: Vec<(u64, String)>,
}

/// What is known of the settings before the first change.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsBefore {
    /// The string alone: PyTorch before 2.11 does not tell the values without copying its history.
    Text(String),
    /// String and values.
    Values(RecordedSettings),
}

impl Default for SettingsBefore {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// Who wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Producer {
    /// PyTorch's caching allocator, as far as the schema tells.
    #[default]
    PyTorch,
    /// vramwise's allocator in the place of that, as the settings of the file say.
    Vramwise,
    /// Something else with the same schema; the text says what gave it away.
    Other(String),
}

/// Something that a reader of results should know about the file.
///
/// | code | meaning |
/// | --- | --- |
/// | `damaged-file` | only the part before the damage was read |
/// | `damaged-entries` | entries that cannot be used were left out |
/// | `trailing-data` | something follows the snapshot |
/// | `no-history` | only a state; the message says why |
/// | `state-only-history` | one entry at most for each device |
/// | `no-stacks`, `no-times`, `no-settings`, `no-device` | the file lacks them |
/// | `old-schema` | PyTorch 2.0 or earlier; addresses and sizes are computed |
/// | `other-producer` | not written by PyTorch's caching allocator |
/// | `unknown-actions` | entries with an action that is not known |
/// | `odd-values` | values of an unexpected type in fields that can be done without |
/// | `blocks-not-contiguous`, `segment-size-mismatch`, `segments-overlap` | the state contradicts itself |
///
/// Those that take a walk through the history are in [`crate::Description::warnings`] only:
///
/// | code | meaning |
/// | --- | --- |
/// | `started-mid-run` | the history does not start from an empty cache |
/// | `ring-buffer-wrapped` | likewise, and its length is a round number, so that older entries were probably overwritten |
/// | `unpaired-frees` | frees of blocks that the history did not allocate |
/// | `double-allocations` | allocations at addresses that are in use |
/// | `missing-actions` | an action that others imply never occurs (`skip_actions`) |
/// | `no-segments` | a history that ends in an empty state without having freed its segments |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Stable identifier, such as `ring-buffer-wrapped`.
    pub code: &'static str,
    /// One sentence for people.
    pub message: String,
}

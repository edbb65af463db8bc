//! Where the memory of a recording was at its peak, and who held it.
//!
//! Figures come from a replay wherever that reproduces the whole file: they are then those of PyTorch's
//! own counters, and the blocks at any moment are known to the byte. Where the recording began in
//! mid-run or the replay diverges, the history alone is walked: the reserved and requested bytes are
//! still exact for the time of the recording, allocated and active ones are lower bounds, and free
//! memory inside the segments is known at the end only. [`Evidence`] says which.
//!
//! Not here: reading files, printing, growth over steps, what other settings would have changed.

pub(crate) mod alone;
mod category;
mod clock;
mod curve;
pub(crate) mod fold;
pub(crate) mod holders;
mod inspect;
mod memory;
mod notes;
pub(crate) mod phase;
mod pinned;
pub(crate) mod replayed;
mod source;
pub(crate) mod state;
mod waste;

pub use category::{CATEGORIES, CustomRule, SizeRange};
pub use curve::Column;
pub use fold::is_framework;
pub use holders::{By, Group, place_name};
pub use inspect::inspect;
pub use phase::Phase;
pub use pinned::{Pin, PinnedAt};
pub use waste::{FreeMemory, PoolRow};

use vramwise_trace::Warning;
use vramwise_types::TorchVersion;

use crate::stacks::Sampled;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; `None` = all that have segments or a history.
    pub device: Option<u32>,
    /// PyTorch's version, whose rules the replay follows.
    pub version: TorchVersion,
    /// Bytes that the process was allowed to hold, where the file cannot tell; `None` = not known.
    pub capacity: Option<u64>,
    /// The moment whose memory is laid out.
    pub at: At,
    /// How the holders are grouped.
    pub by: By,
    /// Frames of the user's own code that tell two stacks apart, from the innermost outwards.
    pub frames: usize,
    /// Columns of the timeline.
    pub columns: usize,
    /// Peaks and timeline from this event on; `None` = from the first.
    pub from: Option<usize>,
    /// Peaks and timeline up to this event; `None` = to the last.
    pub to: Option<usize>,
    /// The user's rules for categories, asked before all others.
    pub rules: Vec<CustomRule>,
    /// Whether groups by category are told apart by the rule that decided.
    pub rules_shown: bool,
}

impl Options {
    /// The peak by stack, one frame, 60 columns.
    pub fn new(version: TorchVersion) -> Self {
        Self {
            device: None,
            version,
            capacity: None,
            at: At::Peak,
            by: By::Stack,
            frames: 1,
            columns: 60,
            from: None,
            to: None,
            rules: Vec::new(),
            rules_shown: false,
        }
    }
}

/// A moment of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// When most was allocated.
    Peak,
    /// When the snapshot was taken.
    End,
    /// After this event of the history.
    Event(usize),
}

/// What cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file has no such device; the number of those it has.
    NoDevice(u32, usize),
    /// There are neither segments nor events.
    Nothing,
    /// The history is shorter: (event, its length).
    NoEvent(usize, usize),
    /// The first event of the part comes after its last.
    Backwards(usize, usize),
}

/// What a snapshot tells.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// One for each device with segments or a history, ascending.
    pub devices: Vec<DeviceInspection>,
    /// What the file lacks or what was odd in it.
    pub warnings: Vec<Warning>,
}

/// What the figures rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A replay that reproduced the whole file.
    Replay,
    /// The history alone; why there is no replay.
    History(String),
    /// There is no history, only the state at the end.
    State,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceInspection {
    /// Its number.
    pub device: u32,
    /// Entries of its history.
    pub events: usize,
    /// What the figures rest on.
    pub evidence: Evidence,
    /// What had to be assumed, or is not known.
    pub assumptions: Vec<String>,
    /// The peaks; `None` without a history.
    pub peaks: Option<Peaks>,
    /// Requests that found no memory: (event, rounded bytes).
    pub ooms: Vec<(usize, u64)>,
    /// Memory over the events.
    pub timeline: Vec<Column>,
    /// The memory at the moment that was asked for.
    pub memory: Memory,
    /// Segments that few bytes keep, at that moment, at the first failed request and at the end.
    pub pinned: Vec<PinnedAt>,
    /// Whether any entry or block has a stack.
    pub has_stacks: bool,
    /// Where only some steps were recorded with stacks, which.
    pub sampled: Option<Sampled>,
}

/// The four peaks.
#[derive(Clone, Debug)]
pub struct Peaks {
    /// Bytes in blocks that the program held.
    pub allocated: Peak,
    /// Bytes held by the allocator.
    pub reserved: Peak,
    /// Bytes in blocks held by the program or waiting for other streams.
    pub active: Peak,
    /// Requested bytes of active blocks.
    pub requested: Peak,
    /// Why they cannot all be right, where they cannot: a file that contradicts itself.
    pub impossible: Option<String>,
}

/// A peak.
#[derive(Clone, Debug)]
pub struct Peak {
    /// The value.
    pub bytes: u64,
    /// Whether it is exact; else it is a lower bound.
    pub exact: bool,
    /// When it was first reached.
    pub when: When,
}

/// A moment, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// Event of the history; `None` = the end, without a history or after it.
    pub event: Option<usize>,
    /// Microseconds since the first entry; `None` where entries have no times.
    pub since_start_us: Option<u64>,
    /// What the program was doing, as its annotations say.
    pub phase: Phase,
}

/// A number of blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks += 1;
    }
}

/// Blocks of one category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryShare {
    /// The category.
    pub category: String,
    /// Its blocks.
    pub total: Amount,
    /// The same by the rule that decided.
    pub rules: Vec<(String, Amount)>,
}

/// The memory at one moment.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What was asked for.
    pub at: At,
    /// The moment.
    pub when: When,
    /// Whether block sizes are exact; else allocated bytes are lower bounds.
    pub exact: bool,
    /// Bytes held by the allocator.
    pub reserved: u64,
    /// Blocks that the program holds.
    pub allocated: Amount,
    /// Requested bytes of those.
    pub requested: u64,
    /// Blocks that the program gave back but other streams may still use.
    pub pending: Amount,
    /// Allocated blocks by group; the most bytes first. They add up to [`Memory::allocated`].
    pub groups: Vec<Group>,
    /// What the allocated blocks are for, most bytes first. They add up to [`Memory::allocated`].
    pub categories: Vec<CategoryShare>,
    /// Allocated blocks without a stack.
    pub without_stack: Amount,
    /// Allocated blocks that were there before the recording began.
    pub before_recording: Amount,
    /// Free memory; `None` where it is not known at that moment.
    pub free: Option<FreeMemory>,
}

#[cfg(test)]
mod tests;

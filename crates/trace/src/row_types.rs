//! Rows before it is known to which device they belong, and notes about them.

use vramwise_pickle::StrId;

use crate::keys::{Key, Kind};
use crate::snapshot::{BlockState, SegmentKind};
use crate::tables::StackId;

/// A field that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) kind: Kind,
    pub(crate) row: u32,
    pub(crate) key: Key,
    /// What is wrong, to follow "its `key`".
    pub(crate) problem: String,
}

/// A block, before its segment is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRow {
    pub(crate) address: Option<u64>,
    pub(crate) size: u64,
    pub(crate) requested_size: Option<u64>,
    pub(crate) state: BlockState,
    pub(crate) stack: StackId,
}

/// A segment, before its device is known to exist.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRow {
    pub(crate) device: Option<i64>,
    pub(crate) address: u64,
    pub(crate) total_size: u64,
    pub(crate) allocated_size: Option<u64>,
    pub(crate) active_size: Option<u64>,
    pub(crate) requested_size: Option<u64>,
    pub(crate) stream: u64,
    pub(crate) kind: Option<SegmentKind>,
    pub(crate) pool_id: (u64, u64),
    pub(crate) is_expandable: bool,
    pub(crate) stack: StackId,
    /// Range of [`crate::columns::Columns::block_refs`].
    pub(crate) blocks: std::ops::Range<usize>,
}

/// One end of an annotation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnotationRow {
    pub(crate) name: Option<StrId>,
    pub(crate) is_start: bool,
    pub(crate) device: Option<i64>,
    pub(crate) time_us: u64,
}

/// How often something was odd but harmless.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Oddity {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) found: &'static str,
}

/// Which keys a row cannot do without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed(u32);

impl Needed {
    pub(crate) fn new(keys: &[Key]) -> Self {
        Self(keys.iter().fold(0, |bits, key| bits | 1 << *key as u32))
    }

    #[inline]
    pub(crate) fn found(&mut self, key: Key) {
        self.0 &= !(1 << key as u32);
    }

    pub(crate) fn first_missing(self) -> Option<Key> {
        (self.0 != 0).then(|| Key::from_number(self.0.trailing_zeros()))
    }
}

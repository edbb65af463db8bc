//! Which of several free blocks of one size is taken (specification §2.1).

use vramwise_types::TorchVersion;

use crate::block::Block;

/// What decides among free blocks of equal size. The rules for 2.12 and later are read off recordings of
/// 2.12.1, 2.13.0 and 2.15.0; each explains every such choice in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TieRule {
    /// Up to PyTorch 2.11: the lowest address.
    Address,
    /// PyTorch 2.12: the block that has been a block for the longest time. What is cut off in front for
    /// a request is the newer one of the two, and a freed block that absorbs its neighbours stays itself.
    BlockAge,
    /// From PyTorch 2.13 on: the block in the oldest segment, and the lowest address in it.
    SegmentAge,
}

/// More than any segment or reservation has, bytes, as a power of two.
const SEGMENT: u32 = 42;

impl TieRule {
    /// The rule of a release.
    pub const fn of(version: TorchVersion) -> Self {
        if version.at_least_2(13) {
            TieRule::SegmentAge
        } else if version.at_least_2(12) {
            TieRule::BlockAge
        } else {
            TieRule::Address
        }
    }

    /// A release that has this rule.
    pub const fn release(self) -> TorchVersion {
        match self {
            TieRule::Address => TorchVersion::new(2, 11),
            TieRule::BlockAge => TorchVersion::new(2, 12),
            TieRule::SegmentAge => TorchVersion::new(2, 13),
        }
    }

    /// Place of a block among free blocks of its size.
    pub(crate) fn order(self, block: &Block) -> u64 {
        match self {
            TieRule::Address => block.addr,
            TieRule::BlockAge => block.rank,
            TieRule::SegmentAge => block.addr.wrapping_add(block.rank),
        }
    }

    /// The rank of what is new at `addr`, the `number`th of its kind: segment or block.
    pub(crate) fn rank(self, number: u64, addr: u64) -> u64 {
        match self {
            TieRule::Address => 0,
            TieRule::BlockAge => number,
            TieRule::SegmentAge => (number << SEGMENT).wrapping_sub(addr),
        }
    }
}

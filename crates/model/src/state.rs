//! The allocator's state as a snapshot shows it: segments and their blocks (specification §8.5).

use crate::allocator::{Allocator, StreamIndex};
use crate::block::{ALLOCATED, Block, EXPANDABLE, FREE, MAPPED, NONE};
use crate::device::Device;
use crate::pool::PoolIndex;

/// State of a block in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Handed out.
    ActiveAllocated,
    /// Given back, but another stream may still use it.
    ActivePendingFree,
    /// Free.
    Inactive,
}

/// A block of a [`SegmentView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of the last request; stale for free blocks, as in PyTorch.
    pub requested: u64,
    /// What it is used for.
    pub state: BlockState,
}

/// A segment: for expandable memory one contiguous mapped run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Stream that it belongs to.
    pub stream: StreamIndex,
    /// Whether it serves requests of up to 1 MiB.
    pub small: bool,
    /// Pool that it belongs to.
    pub pool: PoolIndex,
    /// Whether it is part of an expandable segment.
    pub expandable: bool,
    /// Its blocks, ascending by address.
    pub blocks: Vec<BlockView>,
}

impl<D: Device> Allocator<D> {
    /// All segments, ascending by address.
    pub fn segments(&self) -> Vec<SegmentView> {
        let mut segments = Vec::new();
        for (id, block) in self.blocks.iter().filter(|(_, b)| b.prev == NONE) {
            let mut run: Option<SegmentView> = None;
            let (mut id, mut block) = (id, block);
            loop {
                if block.has(MAPPED) {
                    let segment = run.get_or_insert_with(|| empty(block));
                    segment.size += block.size;
                    segment.blocks.push(view(block));
                } else {
                    segments.extend(run.take());
                }
                id = if block.next == NONE { break } else { block.next };
                block = &self.blocks[id];
            }
            let _ = id;
            segments.extend(run);
        }
        segments.sort_by_key(|s| s.addr);
        segments
    }
}

fn empty(block: &Block) -> SegmentView {
    SegmentView {
        addr: block.addr,
        size: 0,
        stream: StreamIndex(block.stream),
        small: block.half.is_multiple_of(2),
        pool: PoolIndex(block.half / 2),
        expandable: block.has(EXPANDABLE),
        blocks: Vec::new(),
    }
}

fn view(block: &Block) -> BlockView {
    let state = if block.has(ALLOCATED) {
        BlockState::ActiveAllocated
    } else if block.has(FREE) {
        BlockState::Inactive
    } else {
        BlockState::ActivePendingFree
    };
    BlockView { addr: block.addr, size: block.size, requested: block.requested, state }
}

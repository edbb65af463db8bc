//! The blocks and segments of one moment, wherever they are known from.

use rustc_hash::FxHashMap;
use vramwise_model::SegmentView;
use vramwise_replay::Recording;
use vramwise_trace::{BlockState, DeviceTrace, Events, SegmentKind, StackId};
use vramwise_types::Action;

use super::replayed::Origins;

/// A segment with its blocks.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) pool: (u64, u64),
    pub(crate) small: bool,
    pub(crate) expandable: bool,
    /// Range of [`State::blocks`].
    pub(crate) blocks: std::ops::Range<usize>,
}

/// A block, or an allocation where only the history tells of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) state: BlockState,
    pub(crate) stream: u64,
    /// Pool and whether it is the small half; `None` where only the history tells of the block.
    pub(crate) pool: Option<((u64, u64), bool)>,
    pub(crate) stack: StackId,
    /// Event that allocated it; `None` where the history does not have it.
    pub(crate) event: Option<usize>,
    /// Whether it was there before the recording began.
    pub(crate) before: bool,
}

/// The memory of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The segments; `None` where they are not known.
    pub(crate) segments: Option<Vec<Held>>,
    pub(crate) blocks: Vec<Piece>,
    pub(crate) reserved: u64,
    pub(crate) exact: bool,
}

impl State {
    /// What the snapshot itself shows: the end. `is_before` tells by address whether a block in use is
    /// older than the recording.
    pub(crate) fn at_end(device: &DeviceTrace, is_before: impl Fn(u64) -> bool) -> Self {
        let mut state = State { exact: true, ..State::default() };
        let mut segments = Vec::new();
        for segment in &device.segments {
            let first = state.blocks.len();
            let small = segment.kind == SegmentKind::Small;
            state.reserved = state.reserved.saturating_add(segment.total_size);
            state.blocks.extend(device.blocks_of(segment).iter().map(|b| Piece {
                addr: b.address,
                size: b.size,
                requested: b.requested_size,
                state: b.state,
                stream: segment.stream,
                pool: Some((segment.pool_id, small)),
                stack: b.stack,
                event: None,
                before: b.state != BlockState::Inactive && is_before(b.address),
            }));
            segments.push(Held {
                size: segment.total_size,
                stream: segment.stream,
                pool: segment.pool_id,
                small,
                expandable: segment.is_expandable,
                blocks: first..state.blocks.len(),
            });
        }
        state.segments = Some(segments);
        let stacks: Vec<StackId> = state.blocks.iter().map(|b| b.stack).collect();
        state.find_origins(&device.events, device.events.len());
        // What the snapshot itself says of a block comes first; an older block has no event of ours.
        for (block, stack) in state.blocks.iter_mut().zip(stacks) {
            if stack != StackId::NONE || block.before {
                block.stack = stack;
            }
            block.event = block.event.filter(|_| !block.before);
        }
        state
    }

    /// What a replay shows, with the operations that its blocks come from.
    pub(crate) fn of_replay(
        views: &[SegmentView],
        origins: &Origins,
        recording: &Recording,
        events: &Events,
    ) -> Self {
        let mut state = State { exact: true, ..State::default() };
        let mut segments = Vec::new();
        for view in views {
            let first = state.blocks.len();
            let stream =
                recording.program.streams.get(view.stream.0 as usize).copied().unwrap_or(0);
            let pool = recording.pool_ids.get(view.pool.0 as usize).copied().unwrap_or((0, 0));
            state.reserved = state.reserved.saturating_add(view.size);
            state.blocks.extend(view.blocks.iter().map(|b| Piece {
                addr: b.addr,
                size: b.size,
                requested: b.requested,
                state: match b.state {
                    vramwise_model::BlockState::ActiveAllocated => BlockState::ActiveAllocated,
                    vramwise_model::BlockState::ActivePendingFree => BlockState::ActivePendingFree,
                    vramwise_model::BlockState::Inactive => BlockState::Inactive,
                },
                stream,
                pool: Some((pool, view.small)),
                stack: StackId::NONE,
                event: None,
                before: false,
            }));
            segments.push(Held {
                size: view.size,
                stream,
                pool,
                small: view.small,
                expandable: view.expandable,
                blocks: first..state.blocks.len(),
            });
        }
        state.segments = Some(segments);
        for block in state.blocks.iter_mut().filter(|b| b.state != BlockState::Inactive) {
            block.event = origins.event(block.addr, recording, events);
            if let Some(event) = block.event.filter(|_| !events.stack.is_empty()) {
                block.stack = events.stack_of(event);
            }
        }
        state
    }

    /// Gives every block in use the event of the last allocation at its address up to `until`, and its
    /// stack.
    pub(crate) fn find_origins(&mut self, events: &Events, until: usize) {
        let in_use = |b: &Piece| b.state != BlockState::Inactive;
        let mut wanted: FxHashMap<u64, usize> = self
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, b)| in_use(b))
            .map(|(i, b)| (b.addr, i))
            .collect();
        for i in (0..events.len().min(until.saturating_add(1))).rev() {
            if wanted.is_empty() {
                break;
            }
            if events.action[i] == Action::Alloc
                && let Some(block) = wanted.remove(&events.addr[i])
            {
                self.blocks[block].event = Some(i);
                if !events.stack.is_empty() {
                    self.blocks[block].stack = events.stack_of(i);
                }
            }
        }
    }

    /// The blocks that the program holds.
    pub(crate) fn allocated(&self) -> impl Iterator<Item = &Piece> {
        self.blocks.iter().filter(|b| b.state == BlockState::ActiveAllocated)
    }
}

//! The figures from the history alone: no allocator, only who was there and how much was asked.
//!
//! Two walks. The first finds what must have been there before the recording: blocks freed or still
//! in use that the history did not allocate. The second adds and subtracts. Sizes in a history are the
//! requested ones; a block's own size is taken from the final state where it is still there, and is
//! otherwise the rounded request, which the allocator never goes below.

use rustc_hash::FxHashMap;
use vramwise_model::settings::Config;
use vramwise_model::size::round_size;
use vramwise_trace::{BlockState, DeviceTrace, Events, StackId};
use vramwise_types::Action;

use super::curve::{Column, Curve, Level};
use super::state::{Piece, State};

/// A history that is walked without a replay. Step `n` of its curve is the moment after the first `n`
/// events, 0 the beginning.
pub(crate) struct Alone<'a> {
    device: &'a DeviceTrace,
    config: &'a Config,
    requests: bool,
    completions: bool,
    /// What was there before the first event.
    before: Vec<Piece>,
    reserved_before: u64,
    /// Sizes of the blocks that are still in use at the end, by the event that allocated them.
    sizes: FxHashMap<usize, u64>,
    pub(super) curve: Curve,
    pub(super) timeline: Vec<Column>,
}

/// The blocks in use while the history is walked.
#[derive(Clone, Default)]
struct Walk {
    live: FxHashMap<u64, Piece>,
    pending: FxHashMap<u64, Piece>,
    level: Level,
}

impl Walk {
    fn enter(&mut self, piece: Piece) {
        // An address that is given out again was freed in between, whether that was recorded or not.
        let allocated = piece.state == BlockState::ActiveAllocated;
        let old = if allocated {
            self.live.insert(piece.addr, piece)
        } else {
            self.pending.insert(piece.addr, piece)
        };
        if let Some(old) = old {
            self.leave(&old);
        }
        let level = &mut self.level;
        if allocated {
            level.allocated = level.allocated.saturating_add(piece.size);
        }
        level.active = level.active.saturating_add(piece.size);
        level.requested = level.requested.saturating_add(piece.requested);
    }

    /// Subtracts a block that is in no table any more.
    fn leave(&mut self, piece: &Piece) {
        let level = &mut self.level;
        if piece.state == BlockState::ActiveAllocated {
            level.allocated = level.allocated.saturating_sub(piece.size);
        }
        level.active = level.active.saturating_sub(piece.size);
        level.requested = level.requested.saturating_sub(piece.requested);
    }
}

/// What the history last did at an address.
#[derive(Clone, Copy)]
enum Seen {
    AllocatedBy(usize),
    Freed,
}

impl<'a> Alone<'a> {
    pub(crate) fn new(
        device: &'a DeviceTrace,
        config: &'a Config,
        window: Option<std::ops::Range<usize>>,
        columns: usize,
    ) -> Self {
        let events = &device.events;
        let has = |wanted: &[Action]| events.action.iter().any(|a| wanted.contains(a));
        let mut alone = Self {
            device,
            config,
            requests: has(&[Action::FreeRequested]),
            completions: has(&[Action::FreeCompleted]),
            before: Vec::new(),
            reserved_before: reserved_before(device),
            sizes: FxHashMap::default(),
            curve: Curve::new(0, None, 0, Level::default()),
            timeline: Vec::new(),
        };
        alone.find_before();
        let mut walk = alone.start();
        let mut curve = Curve::new(events.len(), window, columns, walk.level);
        for i in 0..events.len() {
            alone.step(&mut walk, i);
            curve.see(i + 1, i, walk.level, walk.level);
        }
        alone.timeline = curve.finish();
        alone.curve = curve;
        alone
    }

    /// Most bytes held at once over the events that were looked at.
    pub(crate) fn peak_reserved(&self) -> u64 {
        self.curve.reserved.bytes
    }

    /// The blocks in use after the first `count` events, and the bytes held then.
    pub(crate) fn state_after(&self, count: usize) -> State {
        let mut walk = self.start();
        for i in 0..self.device.events.len().min(count) {
            self.step(&mut walk, i);
        }
        let mut blocks: Vec<Piece> =
            walk.live.into_values().chain(walk.pending.into_values()).collect();
        blocks.sort_unstable_by_key(|b| b.addr);
        State { segments: None, blocks, reserved: walk.level.reserved, exact: false }
    }

    /// Whether the block in use at `addr` at the end is older than the recording.
    pub(super) fn is_before(&self, addr: u64) -> bool {
        // Of the blocks of the beginning only those that are still there have a pool.
        let found = self.before.binary_search_by_key(&addr, |b| b.addr);
        found.is_ok_and(|i| self.before[i].pool.is_some())
    }

    fn start(&self) -> Walk {
        let mut walk = Walk::default();
        walk.level.reserved = self.reserved_before;
        for piece in &self.before {
            walk.enter(*piece);
        }
        walk
    }

    fn step(&self, walk: &mut Walk, i: usize) {
        let events = &self.device.events;
        let (addr, size) = (events.addr[i], events.size[i]);
        match events.action[i] {
            Action::Alloc => walk.enter(self.allocated(i)),
            Action::Free => self.freed(walk, addr),
            Action::FreeRequested if self.completions => {
                if let Some(mut piece) = walk.live.remove(&addr) {
                    walk.leave(&piece);
                    piece.state = BlockState::ActivePendingFree;
                    walk.enter(piece);
                }
            }
            Action::FreeRequested => self.freed(walk, addr),
            Action::FreeCompleted => match walk.pending.remove(&addr) {
                Some(piece) => walk.leave(&piece),
                None if !self.requests => self.freed(walk, addr),
                None => {}
            },
            Action::SegmentAlloc | Action::SegmentMap => {
                walk.level.reserved = walk.level.reserved.saturating_add(size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                walk.level.reserved = walk.level.reserved.saturating_sub(size);
            }
            _ => {}
        }
    }

    fn freed(&self, walk: &mut Walk, addr: u64) {
        if let Some(piece) = walk.live.remove(&addr) {
            walk.leave(&piece);
        }
    }

    fn allocated(&self, i: usize) -> Piece {
        let events = &self.device.events;
        let requested = events.size[i];
        Piece {
            addr: events.addr[i],
            size: self.sizes.get(&i).copied().unwrap_or_else(|| self.block_size(requested)),
            requested,
            state: BlockState::ActiveAllocated,
            stream: handle(events, i),
            pool: None,
            stack: events.stack_of(i),
            event: Some(i),
            before: false,
        }
    }

    fn block_size(&self, requested: u64) -> u64 {
        if requested == 0 || requested >= vramwise_model::size::TOO_LARGE {
            return requested;
        }
        round_size(self.config, requested)
    }

    /// Finds the blocks that were there before the first event.
    fn find_before(&mut self) {
        let events = &self.device.events;
        let mut seen: FxHashMap<u64, Seen> = FxHashMap::default();
        let mut sizes = FxHashMap::default();
        let mut before = Vec::new();
        let mut older = |i: usize, state| {
            before.push(Piece {
                addr: events.addr[i],
                size: self.block_size(events.size[i]),
                requested: events.size[i],
                state,
                stream: handle(events, i),
                pool: None,
                stack: StackId::NONE,
                event: None,
                before: true,
            });
        };
        for i in 0..events.len() {
            let addr = events.addr[i];
            match events.action[i] {
                Action::Alloc => {
                    seen.insert(addr, Seen::AllocatedBy(i));
                }
                Action::FreeRequested | Action::Free | Action::FreeCompleted => {
                    let first = seen.insert(addr, Seen::Freed).is_none();
                    let waited = events.action[i] == Action::FreeCompleted && self.requests;
                    let pending = BlockState::ActivePendingFree;
                    if first {
                        older(i, if waited { pending } else { BlockState::ActiveAllocated });
                    }
                }
                _ => {}
            }
        }
        for segment in &self.device.segments {
            for block in self.device.blocks_of(segment) {
                if block.state == BlockState::Inactive {
                    continue;
                }
                if let Some(seen) = seen.get(&block.address) {
                    if let Seen::AllocatedBy(event) = seen {
                        sizes.insert(*event, block.size);
                    }
                } else {
                    before.push(Piece {
                        addr: block.address,
                        size: block.size,
                        requested: block.requested_size,
                        state: block.state,
                        stream: segment.stream,
                        pool: Some((
                            segment.pool_id,
                            segment.kind == vramwise_trace::SegmentKind::Small,
                        )),
                        stack: block.stack,
                        event: None,
                        before: true,
                    });
                }
            }
        }
        before.sort_by_key(|b| b.addr);
        self.before = before;
        self.sizes = sizes;
    }
}

fn handle(events: &Events, i: usize) -> u64 {
    let stream = events.stream.get(i).and_then(|s| events.streams.get(*s as usize));
    stream.copied().unwrap_or(0)
}

/// Bytes held before the first event: what is held at the end less what the history took. Where that
/// does not add up, at least so much that the history never gives back more than there is.
fn reserved_before(device: &DeviceTrace) -> u64 {
    let (mut net, mut lowest) = (0i128, 0i128);
    for (action, size) in device.events.action.iter().zip(&device.events.size) {
        if action.is_growth() {
            net += i128::from(*size);
        } else if action.is_release() {
            net -= i128::from(*size);
            lowest = lowest.min(net);
        }
    }
    let end: i128 = device.segments.iter().map(|s| i128::from(s.total_size)).sum();
    u64::try_from((end - net).max(-lowest)).unwrap_or(0)
}

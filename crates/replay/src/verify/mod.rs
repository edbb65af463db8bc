//! Verification: the recorded history through the model under its own settings (specification §16.2).
//!
//! The model gets the requests, the frees and the addresses that the driver gave; everything else it
//! predicts, and each prediction is compared with the recording. On the way the program is recovered:
//! what was asked, without where it went.

mod stretch;

use rustc_hash::FxHashMap;
use vramwise_model::settings::Config;
use vramwise_model::{Allocator, BlockId, MallocError, PoolIndex, Scope, SegmentView, StreamIndex};
use vramwise_types::{Action, TorchVersion};

use crate::checker::{Checker, Exact, Mismatch};
use crate::feed::Feed;
use crate::history::{Ev, History};
use crate::pools::PoolMap;
use crate::program::{Op, Program, ReleaseScope};

/// Inputs of a verification besides the history.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) version: TorchVersion,
    /// Bytes that the process was allowed to hold.
    pub(crate) limit: Option<u64>,
    /// The card's total bytes.
    pub(crate) total: u64,
    /// Whether the card may have been full although no request failed.
    pub(crate) full_card: bool,
    /// Changes of settings in mid-run: (entry of the history, settings), ascending.
    pub(crate) changes: Vec<(usize, Config)>,
    /// What was there when the recording began.
    pub(crate) start: Vec<SegmentView>,
}

/// How a run through the history ended.
pub(crate) struct Run {
    pub(crate) allocator: Allocator<Feed>,
    /// Entries matched.
    pub(crate) reached: usize,
    pub(crate) exact: Exact,
    pub(crate) mismatch: Option<Mismatch>,
    pub(crate) program: Program,
    pub(crate) ooms: Vec<FailedRequest>,
    /// Most bytes that the recording ever held.
    pub(crate) most_held: u64,
}

/// A request that failed in the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedRequest {
    /// Entry of the history.
    pub(crate) at: usize,
    /// Rounded bytes.
    pub(crate) size: u64,
    /// Bytes asked of the device.
    pub(crate) segment: u64,
    /// Bytes held at that moment.
    pub(crate) reserved: u64,
    /// Free bytes as the driver said.
    pub(crate) device_free: u64,
}

pub(crate) struct Verifier<'a> {
    history: &'a History,
    setup: &'a Setup,
    pools: &'a PoolMap,
    allocator: Allocator<Feed>,
    checker: Checker<'a>,
    /// Allocated and pending blocks by address: (block, slot).
    live: FxHashMap<u64, (BlockId, u32)>,
    pending: FxHashMap<u64, (BlockId, u32)>,
    program: Program,
    ooms: Vec<FailedRequest>,
    /// Most bytes ever held, the best guess at a limit that is not known.
    most_held: u64,
    /// Whether the device or an unknown limit refused requests.
    refuses: bool,
    next_change: usize,
    /// Pool of the allocation before, for failed requests, which have no address.
    last_pool: PoolIndex,
}

impl<'a> Verifier<'a> {
    pub(crate) fn new(history: &'a History, setup: &'a Setup, pools: &'a PoolMap) -> Self {
        // Failed requests without a known limit: the card, or a limit that the file does not tell.
        let refuses = refuses(history, setup);
        let mut allocator =
            Allocator::new(setup.config.clone(), setup.version, Feed::new(setup.total, refuses));
        if setup.limit.is_some() {
            allocator.set_limit(setup.limit);
        }
        for handle in &history.streams {
            allocator.stream(*handle);
        }
        // The state at the start may have more pools than the history needs.
        let at_start = setup.start.iter().map(|s| s.pool.0 as usize + 1).max().unwrap_or(1);
        for pool in 1..pools.count().max(at_start) {
            allocator.create_pool(pools.options(PoolIndex(narrow_pool(pool))));
        }
        let mut verifier = Self {
            history,
            setup,
            pools,
            allocator,
            checker: Checker::new(history),
            live: FxHashMap::default(),
            pending: FxHashMap::default(),
            program: Program::default(),
            ooms: Vec::new(),
            most_held: most_held(history, setup),
            refuses,
            next_change: 0,
            last_pool: PoolIndex::DEFAULT,
        };
        verifier.program.streams = history.streams.clone();
        verifier.program.no_split = pools.whole().iter().map(|p| narrow(p.0)).collect();
        verifier.program.pools = u16::try_from(verifier.allocator.pool_count()).unwrap_or(u16::MAX);
        verifier.load_start();
        verifier
    }

    /// Puts the blocks in place that were there when the recording began.
    fn load_start(&mut self) {
        for (block, view) in self.allocator.restore(&self.setup.start) {
            let slot = self.program.slots;
            self.program.slots += 1;
            let (addr, size) =
                (self.allocator.address(block), self.allocator.requested_size(block));
            let (stream, pool) = (narrow(view.stream.0), narrow(view.pool.0));
            self.push_op(Op::Malloc { size, stream, pool, slot });
            if view.pending {
                self.push_op(Op::FreePending { slot });
                self.pending.insert(addr, (block, slot));
            } else {
                self.live.insert(addr, (block, slot));
            }
        }
        self.program.preamble = self.program.ops.len();
    }

    /// Runs to the end or to the first divergence.
    pub(crate) fn run(self) -> Run {
        let end = self.history.len();
        self.run_until(end, |_| {})
    }

    /// Runs to the first operation that does not begin before entry `until`, or to the first divergence.
    /// `begins` is told the entry at which each operation begins.
    pub(crate) fn run_until(mut self, until: usize, mut begins: impl FnMut(usize)) -> Run {
        let until = until.min(self.history.len());
        while self.checker.at < until && self.checker.mismatch.is_none() {
            begins(self.checker.at);
            self.change_settings();
            self.step();
        }
        Run {
            allocator: self.allocator,
            reached: self.checker.at,
            exact: self.checker.exact,
            mismatch: self.checker.mismatch,
            program: self.program,
            ooms: self.ooms,
            most_held: self.most_held,
        }
    }

    fn change_settings(&mut self) {
        while let Some((at, config)) = self.setup.changes.get(self.next_change)
            && *at <= self.checker.at
        {
            self.allocator.set_config(config.clone());
            self.next_change += 1;
        }
    }

    fn push_op(&mut self, op: Op) {
        let event = self.history.event_of(self.checker.at);
        self.push_op_at(op, event);
    }

    fn push_op_at(&mut self, op: Op, event: usize) {
        self.program.ops.push(op);
        self.program.events.push(u32::try_from(event).unwrap_or(u32::MAX));
    }

    fn entry(&self, i: usize) -> Option<&Ev> {
        self.history.entries.get(i)
    }

    /// One operation begins at each position (§16.2).
    fn step(&mut self) {
        let at = self.checker.at;
        let entry = self.history.entries[at];
        match entry.action {
            Action::FreeRequested | Action::Free => self.free(at, entry.addr),
            Action::FreeCompleted => {
                if !self.flush_with_completions(at) {
                    self.complete(entry.addr);
                }
            }
            _ => self.stretch(at),
        }
    }

    fn diverge(&mut self) {
        let at = self.checker.at;
        self.checker.mismatch.get_or_insert(Mismatch { at, got: None });
    }

    fn free(&mut self, at: usize, addr: u64) {
        let Some((block, slot)) = self.live.remove(&addr) else { return self.diverge() };
        self.allocator.device_mut().expect(&[]);
        let completed = |e: &Ev| e.action == Action::FreeCompleted && e.addr == addr;
        let at_once = self.history.entries[at].action == Action::Free
            || !self.history.has_completed
            || self.entry(at + 1).is_some_and(completed);
        if at_once {
            self.push_op(Op::Free { slot });
            self.allocator.free(block, &mut self.checker);
        } else {
            self.push_op(Op::FreePending { slot });
            self.allocator.free_pending(block, &mut self.checker);
            self.pending.insert(addr, (block, slot));
        }
    }

    fn complete(&mut self, addr: u64) {
        if let Some((block, slot)) = self.pending.remove(&addr) {
            self.push_op(Op::Complete { slot });
            self.allocator.complete(block, &mut self.checker);
        } else if let Some((block, slot)) = self.live.remove(&addr) {
            // a producer that writes no free_requested
            self.push_op(Op::Free { slot });
            self.allocator.free(block, &mut self.checker);
        } else {
            self.diverge();
        }
    }
}

/// Whether the device or an unknown limit refused requests: some failed, and no limit is known. Where none
/// failed, those that succeeded after a flush may have been refused before it.
pub(crate) fn refuses(history: &History, setup: &Setup) -> bool {
    let failed = || history.entries.iter().any(|e| e.action == Action::Oom);
    setup.limit.is_none() && (setup.full_card || failed())
}

/// The most that was held at one time.
fn most_held(history: &History, setup: &Setup) -> u64 {
    let mut held: u64 = setup.start.iter().map(|s| s.size).sum();
    let mut most = held;
    for e in &history.entries {
        match e.action {
            Action::SegmentAlloc | Action::SegmentMap => held = held.saturating_add(e.size),
            Action::SegmentFree | Action::SegmentUnmap => held = held.saturating_sub(e.size),
            _ => {}
        }
        most = most.max(held);
    }
    most
}

/// Pools are far fewer than 2^32.
fn narrow_pool(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Streams and pools of one program are few.
pub(crate) fn narrow(index: u32) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

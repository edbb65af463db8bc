//! Verification: the recorded history through the model under its own settings (specification §16.2).
//!
//! The model gets the requests, the frees and the addresses that the driver gave; everything else it
//! predicts, and each prediction is compared with the recording. On the way the program is recovered:
//! what was asked, without where it went.

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
    pub(crate) fn run(mut self) -> Run {
        while self.checker.at < self.history.len() && self.checker.mismatch.is_none() {
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

    /// `R* N* X`: releases, growth, and what caused them.
    fn stretch(&mut self, at: usize) {
        let entries = &self.history.entries;
        let count = |from: usize, f: fn(Action) -> bool| {
            entries[from..].iter().take_while(|e| f(e.action)).count()
        };
        let releases = count(at, Action::is_release);
        let growth = count(at + releases, Action::is_growth);
        let cause = at + releases + growth;
        let is_malloc =
            self.entry(cause).is_some_and(|e| matches!(e.action, Action::Alloc | Action::Oom));
        if releases == 0 {
            return if is_malloc { self.malloc(at, cause) } else { self.diverge() };
        }
        if !is_malloc {
            if !self.flush_with_completions(at) {
                self.release(at, at + releases);
            }
            return;
        }
        let x = self.history.entries[cause];
        let end = at + releases;
        if !self.could_release(self.pool_of(cause), &x) {
            return self.release(at, end);
        }
        let Err(as_malloc) = self.flush(at, end, cause) else { return };
        self.release(at, end);
        // Where no reading holds, the one that came further says more.
        if let Some(as_call) = &mut self.checker.mismatch
            && as_malloc.at >= as_call.at
        {
            *as_call = as_malloc;
        }
    }

    /// Takes the releases `at..end` for those of the malloc at `cause`. Where they belong to several
    /// pools, the first of them may be the end of a pool, and the rest the malloc's.
    fn flush(&mut self, at: usize, end: usize, cause: usize) -> Result<(), Mismatch> {
        let mut furthest = match self.try_malloc(at, cause) {
            Ok(()) => return Ok(()),
            Err(mismatch) => mismatch,
        };
        if self.pools.count() == 1 {
            return Err(furthest);
        }
        let calls = self.pools.calls(self.history, at, end);
        let before = calls.len().saturating_sub(1);
        for (_, split) in &calls[..before] {
            let undo = self.checkpoint();
            self.release(at, *split);
            if self.checker.mismatch.is_none() {
                match self.try_malloc(*split, cause) {
                    Ok(()) => return Ok(()),
                    Err(m) if m.at > furthest.at => furthest = m,
                    Err(_) => {}
                }
            }
            self.undo(undo);
        }
        Err(furthest)
    }

    /// Runs a malloc and keeps it only if it matches; else says where it went wrong.
    fn try_malloc(&mut self, at: usize, cause: usize) -> Result<(), Mismatch> {
        let before = self.checkpoint();
        self.malloc(at, cause);
        let Some(mismatch) = self.checker.mismatch else { return Ok(()) };
        self.undo(before);
        Err(mismatch)
    }

    fn checkpoint(&self) -> Checkpoint<'a> {
        Checkpoint {
            allocator: self.allocator.clone(),
            checker: self.checker.clone(),
            ops: self.program.ops.len(),
            scopes: self.program.scopes.len(),
            slots: self.program.slots,
            ooms: self.ooms.len(),
            pending: self.pending.clone(),
            last_pool: self.last_pool,
        }
    }

    /// Back to a checkpoint, from which nothing was freed but what a flush completed.
    fn undo(&mut self, to: Checkpoint<'a>) {
        self.allocator = to.allocator;
        self.checker = to.checker;
        self.program.ops.truncate(to.ops);
        self.program.events.truncate(to.ops);
        self.program.scopes.truncate(to.scopes);
        self.program.slots = to.slots;
        self.ooms.truncate(to.ooms);
        self.pending = to.pending;
        self.last_pool = to.last_pool;
        self.live.retain(|_, (_, slot)| *slot < to.slots);
    }

    /// Whether a malloc of `x` could return memory first (§16.2 rule 3). Without a known limit that is
    /// where the request failed, or where it would hold more than was ever held.
    fn could_release(&self, pool: PoolIndex, x: &Ev) -> bool {
        let stream = StreamIndex(x.stream);
        if x.action == Action::Oom && self.pools.count() > 1 {
            return true;
        }
        if !self.refuses {
            return self.allocator.could_release(pool, x.size, stream);
        }
        let grown = |seg: u64| self.allocator.reserved_bytes().saturating_add(seg);
        self.allocator
            .miss_size(pool, x.size, stream)
            .is_some_and(|seg| x.action == Action::Oom || grown(seg) > self.most_held)
    }

    /// A flush waits for pending frees: their completions then stand before its releases, or between the
    /// oversize blocks that went first and the rest (§8.4). Tried where such entries begin at `at`.
    fn flush_with_completions(&mut self, at: usize) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let inside = |a: Action| a.is_release() || a.is_growth() || a == Action::FreeCompleted;
        let entries = &self.history.entries;
        let cause = at + entries[at..].iter().take_while(|e| inside(e.action)).count();
        let released = entries[at..cause].iter().any(|e| e.action.is_release());
        let Some(x) = entries.get(cause).copied().filter(|_| released) else { return false };
        if !matches!(x.action, Action::Alloc | Action::Oom) {
            return false;
        }
        if !self.could_release(self.pool_of(cause), &x) {
            return false;
        }
        let completed: Vec<BlockId> = entries[at..cause]
            .iter()
            .filter(|e| e.action == Action::FreeCompleted)
            .filter_map(|e| self.pending.get(&e.addr).map(|(block, _)| *block))
            .collect();
        self.allocator.order_pending(&completed);
        self.try_malloc(at, cause).is_ok()
    }

    fn pool_of(&self, cause: usize) -> PoolIndex {
        let entry = &self.history.entries[cause];
        if entry.action == Action::Oom { self.last_pool } else { self.pools.of_alloc(cause) }
    }

    /// A malloc whose entries are `at..=cause`.
    fn malloc(&mut self, at: usize, cause: usize) {
        let pool = self.pool_of(cause);
        if self.history.entries[cause].action == Action::Oom && self.pools.count() > 1 {
            return self.failed(at, cause, pool);
        }
        self.malloc_from(at, cause, pool);
    }

    /// A request that failed: the history does not say in which pool. Releases before it say that it
    /// was the default one; without any it is tried in the pools that were used before and after it,
    /// then in the others.
    fn failed(&mut self, at: usize, cause: usize, last: PoolIndex) {
        let entries = &self.history.entries;
        let releases = entries[at..cause].iter().any(|e| e.action.is_release());
        let x = entries[cause];
        let next = entries[cause..].iter().position(|e| e.action == Action::Alloc);
        let next = next.map_or(last, |n| self.pools.of_alloc(cause + n));
        // Routings are short: it was probably the default pool if a neighbour was.
        let mut pools = vec![last, next];
        if releases || pools.contains(&PoolIndex::DEFAULT) {
            pools.insert(0, PoolIndex::DEFAULT);
        } else {
            pools.push(PoolIndex::DEFAULT);
        }
        pools.extend((1..self.pools.count()).rev().map(|p| PoolIndex(narrow_pool(p))));
        for (i, pool) in pools.iter().enumerate() {
            let known = pools[..i].contains(pool);
            let serves = self.allocator.miss_size(*pool, x.size, StreamIndex(x.stream)).is_none();
            if known || serves {
                continue;
            }
            let before = self.checkpoint();
            self.malloc_from(at, cause, *pool);
            if self.checker.mismatch.is_none() {
                return;
            }
            self.undo(before);
        }
        self.malloc_from(at, cause, last);
    }

    fn malloc_from(&mut self, at: usize, cause: usize, pool: PoolIndex) {
        let entries = &self.history.entries;
        let x = entries[cause];
        self.last_pool = pool;
        self.allocator.device_mut().expect(&entries[at..cause]);
        self.free_pools(at, cause);
        let stream = StreamIndex(x.stream);
        let routing = pool != PoolIndex::DEFAULT;
        let event = self.history.event_of(at);
        let made = self.allocator.malloc_from(pool, x.size, stream, routing, &mut self.checker);
        if self.checker.mismatch.is_none() && self.checker.at != cause + 1 {
            self.diverge();
        }
        if self.checker.mismatch.is_some() {
            return;
        }
        let (stream, pool) = (narrow(x.stream), narrow(pool.0));
        match made {
            Ok(block) => {
                let slot = self.program.slots;
                self.program.slots += 1;
                self.push_op_at(Op::Malloc { size: x.size, stream, pool, slot }, event);
                self.live.insert(x.addr, (block, slot));
            }
            Err(error) => {
                let segment = match error {
                    MallocError::OutOfMemory { segment, .. } => segment,
                    MallocError::TooLarge(size) => size,
                };
                let reserved = self.allocator.reserved_bytes();
                let (size, device_free) = (x.size, x.addr);
                self.ooms.push(FailedRequest { at: cause, size, segment, reserved, device_free });
                self.push_op_at(Op::Failed { size: x.size, stream, pool }, event);
            }
        }
        self.drop_completed(at, cause);
    }

    /// Pending frees that the malloc itself completed are not pending any more.
    fn drop_completed(&mut self, at: usize, cause: usize) {
        if self.pending.is_empty() {
            return;
        }
        for e in &self.history.entries[at..cause] {
            if e.action == Action::FreeCompleted {
                self.pending.remove(&e.addr);
            }
        }
    }

    /// The private pools whose segments the entries `at..end` release have no users; whether others have,
    /// only their silence tells: so they are taken to have some.
    fn free_pools(&mut self, at: usize, end: usize) {
        if self.pools.count() == 1 {
            return;
        }
        let released = self.pools.released(self.history, at, end);
        for pool in (1..self.pools.count()).map(|p| PoolIndex(narrow_pool(p))) {
            self.allocator.set_freeable(pool, released.contains(&pool));
        }
        self.allocator.order_pools(released);
    }

    /// Releases `at..end` that no malloc caused: one or more calls of empty_cache or ends of pools.
    fn release(&mut self, at: usize, end: usize) {
        self.free_pools(at, end);
        for (call, _) in self.pools.calls(self.history, at, end) {
            let scope = u32::try_from(self.program.scopes.len()).unwrap_or(u32::MAX);
            self.push_op(Op::Release { scope });
            self.program.scopes.push(call.clone());
            let ReleaseScope { default, private } = call;
            self.allocator.release_cached(&Scope::exactly(default, private), &mut self.checker);
            if self.checker.mismatch.is_some() {
                return;
            }
        }
        if self.checker.at != end {
            self.diverge();
        }
    }
}

/// What is restored where a reading of the history does not hold.
struct Checkpoint<'a> {
    allocator: Allocator<Feed>,
    checker: Checker<'a>,
    ops: usize,
    scopes: usize,
    slots: u32,
    ooms: usize,
    pending: FxHashMap<u64, (BlockId, u32)>,
    last_pool: PoolIndex,
}

/// Whether the device or an unknown limit refused requests: some failed, and no limit is known.
pub(crate) fn refuses(history: &History, setup: &Setup) -> bool {
    setup.limit.is_none() && history.entries.iter().any(|e| e.action == Action::Oom)
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

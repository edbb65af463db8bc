//! Stretches of releases and growth, and the mallocs, flushes and calls that explain them (specification
//! §16.2 rule 3, §8.4).

use super::*;

impl<'a> Verifier<'a> {
    /// `R* N* X`: releases, growth, and what caused them.
    pub(super) fn stretch(&mut self, at: usize) {
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
    pub(super) fn flush_with_completions(&mut self, at: usize) -> bool {
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
        if entry.action == Action::Oom && !self.pools.is_told() {
            return self.last_pool;
        }
        self.pools.of_alloc(cause)
    }

    /// A malloc whose entries are `at..=cause`.
    fn malloc(&mut self, at: usize, cause: usize) {
        let pool = self.pool_of(cause);
        let failed = self.history.entries[cause].action == Action::Oom;
        if failed && self.pools.count() > 1 && !self.pools.is_told() {
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

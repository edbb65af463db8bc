//! A history of which only the requests count: another allocator than PyTorch's placed the blocks.
//!
//! What a program asks for, when and on which stream does not depend on who serves it. So the program is recovered
//! without any model, and what PyTorch's allocator would have done with it is a replay like any other. Addresses only
//! tell which request a free belongs to; segments only tell which pool, and when `empty_cache()` was called.

use rustc_hash::{FxHashMap, FxHashSet};
use vramwise_model::{Allocator, PoolIndex};
use vramwise_trace::{BlockState, DeviceTrace};
use vramwise_types::Action;

use crate::divergence::{self, Divergence};
use crate::feed::Feed;
use crate::history::{BEYOND, Ev, History};
use crate::pools;
use crate::program::{Op, Program, ReleaseScope};
use crate::recording::{Agreement, Agreements, Recording, VerifyOptions};
use crate::verify::narrow;

/// The program of a history; nothing of it is compared.
pub(crate) fn recording(
    history: &History,
    device: &DeviceTrace,
    options: &VerifyOptions,
) -> Recording {
    let mut walk = Walk::new(history, device);
    walk.preamble(device);
    walk.run();
    let mut assumptions = vec![
        "recorded under vramwise's allocator: its blocks are not compared with PyTorch's; the requests of the program \
         are taken, which are the same under any allocator"
            .to_owned(),
    ];
    assumptions.extend(walk.notes());
    let limit = options.limit.or(walk.capacity);
    if options.limit.is_none()
        && let Some(bytes) = walk.capacity
    {
        assumptions.push(format!(
            "requests failed but no capacity was given: {bytes} bytes are assumed from what was held and what the \
             driver had free then (give the true one with --capacity)"
        ));
    }
    let mut program = walk.program;
    program.streams = history.streams.clone();
    program.pools = u16::try_from(walk.ids.len()).unwrap_or(u16::MAX);
    let mut wrong = walk.wrong;
    if let (None, Some((event, entry))) = (&wrong, &history.absurd) {
        wrong = Some(divergence::absurd(*event, entry));
    }
    if let (None, Some(event)) = (&wrong, history.unknown) {
        wrong = Some(divergence::unknown(event));
    }
    // Nothing was counted.
    let unused = Allocator::new(options.config.clone(), options.version, Feed::new(0, false));
    let allocs = history.entries.iter().filter(|e| e.action == Action::Alloc).count() as u64;
    Recording {
        requests_only: true,
        agreement: Agreements {
            allocs: Agreement { recorded: allocs, exact: 0 },
            ..Agreements::default()
        },
        impossible: history
            .absurd
            .map(|(event, _)| format!("event {event} speaks of memory that no device has")),
        first_divergence: wrong,
        final_difference: None,
        stats: unused.stats().clone(),
        segments: Vec::new(),
        pool_ids: walk.ids,
        program,
        calls: std::sync::Arc::from([]),
        ooms: walk.ooms.iter().map(|(at, size)| (history.event_of(*at), *size)).collect(),
        entries: history.len(),
        limit,
        assumptions,
        version: options.version,
    }
}

/// A request that is in use.
#[derive(Clone, Copy)]
struct Held {
    slot: u32,
    size: u64,
    pending: bool,
}

struct Walk<'a> {
    history: &'a History,
    /// Pool ids by pool index.
    ids: Vec<(u64, u64)>,
    /// The pools of requests that are not of the default one, by entry.
    pools: FxHashMap<u32, PoolIndex>,
    program: Program,
    held: FxHashMap<u64, Held>,
    live: u64,
    ooms: Vec<(usize, u64)>,
    /// Bytes that the allocator has from the driver, and the most that failed requests say it could have.
    reserved: u64,
    most_reserved: u64,
    capacity: Option<u64>,
    /// Calls of `empty_cache()` that were inferred.
    releases: usize,
    /// Where the history contradicts itself.
    wrong: Option<Divergence>,
}

impl<'a> Walk<'a> {
    fn new(history: &'a History, device: &DeviceTrace) -> Self {
        let ids = pools::snapshot_pools(device);
        Self {
            history,
            pools: pools_of(history, device, &ids),
            ids,
            program: Program::default(),
            held: FxHashMap::default(),
            live: 0,
            ooms: Vec::new(),
            reserved: 0,
            most_reserved: 0,
            capacity: None,
            releases: 0,
            wrong: None,
        }
    }

    /// What was in use before the history begins: what it frees without having allocated it, and what is still there.
    fn preamble(&mut self, device: &DeviceTrace) {
        let mut seen = FxHashSet::default();
        // (address, bytes, stream, whether another stream uses it).
        let mut before: Vec<(u64, u64, u32, bool)> = Vec::new();
        for e in &self.history.entries {
            let frees =
                matches!(e.action, Action::FreeRequested | Action::FreeCompleted | Action::Free);
            if frees && seen.insert(e.addr) {
                let pending = e.action == Action::FreeCompleted && self.history.has_requested;
                before.push((e.addr, e.size, e.stream, pending));
            } else if e.action == Action::Alloc {
                seen.insert(e.addr);
            }
        }
        let stream = |handle| self.history.streams.iter().position(|h| *h == handle);
        for segment in &device.segments {
            let used = device.blocks_of(segment).iter().filter(|b| b.state != BlockState::Inactive);
            for block in used.filter(|b| !seen.contains(&b.address)) {
                let stream =
                    stream(segment.stream).and_then(|at| u32::try_from(at).ok()).unwrap_or(0);
                let pending = block.state == BlockState::ActivePendingFree;
                let size = if block.requested_size > 0 { block.requested_size } else { block.size };
                before.push((block.address, size, stream, pending));
            }
        }
        before.sort_unstable();
        for (addr, size, stream, pending) in before {
            let pool = around(device, &self.ids, addr);
            self.alloc(0, &Ev { addr, size, stream, action: Action::Alloc }, pool);
            if pending && let Some(held) = self.held.get_mut(&addr) {
                held.pending = true;
                let slot = held.slot;
                self.push(0, Op::FreePending { slot });
            }
        }
        self.program.preamble = self.program.ops.len();
        let total: u128 = device.segments.iter().map(|s| u128::from(s.total_size)).sum();
        let grown = |grows: fn(Action) -> bool| -> u128 {
            let entries = self.history.entries.iter().filter(|e| grows(e.action));
            entries.map(|e| u128::from(e.size)).sum()
        };
        let began = (total + grown(Action::is_release)).saturating_sub(grown(Action::is_growth));
        self.reserved = u64::try_from(began).unwrap_or(u64::MAX);
        self.most_reserved = self.reserved;
    }

    fn run(&mut self) {
        let mut at = 0;
        while at < self.history.len() && self.wrong.is_none() {
            let entry = self.history.entries[at];
            if entry.action.is_growth() || entry.action.is_release() {
                at = self.memory(at);
                continue;
            }
            match entry.action {
                Action::Alloc => {
                    let pool = self.pool(at);
                    self.alloc(at, &entry, pool);
                }
                Action::FreeRequested | Action::Free | Action::FreeCompleted => {
                    self.free(at, &entry);
                }
                Action::Oom => self.failed(at, &entry),
                _ => {}
            }
            at += 1;
        }
    }

    /// Memory that came and went in one operation, from entry `at` on; returns the entry behind it.
    fn memory(&mut self, at: usize) -> usize {
        let (mut taken, mut given, mut end) = (0u64, 0u64, at);
        while let Some(e) = self.history.entries.get(end) {
            if e.action.is_growth() {
                taken = taken.saturating_add(e.size);
            } else if e.action.is_release() {
                given = given.saturating_add(e.size);
            } else {
                break;
            }
            end += 1;
        }
        self.reserved = self.reserved.saturating_sub(given).saturating_add(taken);
        self.most_reserved = self.most_reserved.max(self.reserved);
        // Pages that move are mapped elsewhere at once. What goes without a request that needs it was given back.
        let failed = self.history.entries.get(end).is_some_and(|e| e.action == Action::Oom);
        if given > taken && !failed {
            self.releases += 1;
            let scope = u32::try_from(self.program.scopes.len()).unwrap_or(u32::MAX);
            let mut private: Vec<PoolIndex> = (at..end)
                .filter(|i| self.history.entries[*i].action.is_release())
                .filter_map(|i| self.history.told_pool(i))
                .filter(|pool| *pool != PoolIndex::DEFAULT)
                .collect();
            private.sort_unstable_by_key(|pool| pool.0);
            private.dedup();
            self.program.scopes.push(ReleaseScope { default: true, private });
            self.push(at, Op::Release { scope });
        }
        end
    }

    fn alloc(&mut self, at: usize, entry: &Ev, pool: PoolIndex) {
        let slot = self.program.slots;
        let held = Held { slot, size: entry.size, pending: false };
        if self.held.insert(entry.addr, held).is_some() {
            return self.contradicts(at, "nothing: the address is in use");
        }
        self.live = self.live.saturating_add(entry.size);
        if self.live >= BEYOND {
            return self.contradicts(at, "nothing: no device has as much memory as is in use then");
        }
        self.program.slots += 1;
        let stream = narrow(entry.stream);
        self.push(at, Op::Malloc { size: entry.size, stream, pool: narrow(pool.0), slot });
    }

    fn free(&mut self, at: usize, entry: &Ev) {
        let Some(held) = self.held.get_mut(&entry.addr) else {
            return self.contradicts(at, "nothing: the address is not in use");
        };
        let completed = |e: &Ev| e.action == Action::FreeCompleted && e.addr == entry.addr;
        let next = self.history.entries.get(at + 1).is_some_and(completed);
        let Held { slot, size, pending } = *held;
        if entry.action == Action::FreeRequested && self.history.has_completed {
            if pending {
                return self.contradicts(at, "nothing: the block is freed already");
            }
            held.pending = true;
            if !next {
                self.push(at, Op::FreePending { slot });
            }
            return;
        }
        self.held.remove(&entry.addr);
        self.live -= size;
        let requested = |e: &Ev| e.action == Action::FreeRequested && e.addr == entry.addr;
        let at_once = at > 0 && self.history.entries.get(at - 1).is_some_and(requested);
        self.push(at, if pending && !at_once { Op::Complete { slot } } else { Op::Free { slot } });
    }

    fn failed(&mut self, at: usize, entry: &Ev) {
        // The address of a failed request is what the driver had free.
        let full = (entry.addr < entry.size).then(|| self.reserved.saturating_add(entry.addr));
        self.capacity = self.capacity.max(full).max(Some(self.most_reserved));
        self.ooms.push((at, entry.size));
        let (stream, pool) = (narrow(entry.stream), narrow(self.pool(at).0));
        self.push(at, Op::Failed { size: entry.size, stream, pool });
    }

    fn pool(&self, at: usize) -> PoolIndex {
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.pools.get(&number).copied().unwrap_or(PoolIndex::DEFAULT)
    }

    fn push(&mut self, at: usize, op: Op) {
        self.program.ops.push(op);
        let event = self.history.event_of(at);
        self.program.events.push(u32::try_from(event).unwrap_or(u32::MAX));
    }

    fn contradicts(&mut self, at: usize, got: &str) {
        self.wrong.get_or_insert_with(|| divergence::contradiction(self.history, at, got));
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ids.len() > 1 && !self.history.tells_pools() {
            notes.push(
                "the history does not say which pool a request went to: those whose memory is in a private pool at \
                 the end are taken to be of that pool, others of the default one"
                    .to_owned(),
            );
        }
        if self.releases > 0 {
            notes.push(format!(
                "calls of empty_cache() are inferred from memory that was given back ({} of them)",
                self.releases
            ));
        }
        if self.program.preamble > 0 {
            notes.push(
                "the recording began in mid-run: what was in use then is allocated first; counters start at that moment"
                    .to_owned(),
            );
        }
        notes
    }
}

/// The private pool of each request, by entry: as the entries say, or as the segments at the end do.
fn pools_of(
    history: &History,
    device: &DeviceTrace,
    ids: &[(u64, u64)],
) -> FxHashMap<u32, PoolIndex> {
    let pool = |(i, entry): (usize, &Ev)| match (history.told_pool(i), entry.action) {
        (Some(told), Action::Alloc | Action::Oom) => told,
        (None, Action::Alloc) => around(device, ids, entry.addr),
        _ => PoolIndex::DEFAULT,
    };
    let all = history
        .entries
        .iter()
        .enumerate()
        .map(|at| (u32::try_from(at.0).unwrap_or(u32::MAX), pool(at)));
    all.filter(|(_, pool)| *pool != PoolIndex::DEFAULT).collect()
}

/// The pool of the segment that has an address at the end.
fn around(device: &DeviceTrace, ids: &[(u64, u64)], addr: u64) -> PoolIndex {
    let at = device.segments.partition_point(|s| s.address <= addr);
    let segment = at.checked_sub(1).map(|at| &device.segments[at]);
    let segment = segment.filter(|s| addr - s.address < s.total_size);
    let pool = segment.and_then(|s| ids.binary_search(&s.pool_id).ok());
    pool.and_then(|pool| u32::try_from(pool).ok()).map_or(PoolIndex::DEFAULT, PoolIndex)
}

//! Where every block of a history lay, without regard to pools (specification §16.3, steps 1 and 2).
//!
//! Addresses alone tell the segment of each allocation. What the lookup passed over, and what a release
//! left, tells which segments cannot be in the same pool.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use vramwise_model::settings::Config;
use vramwise_model::size;
use vramwise_types::Action;

use super::stretch::{self, Ties};
use crate::history::{Ev, History};
use crate::verify::Setup;

/// Blocks looked at and pairs noted before the inference gives up: far more than a real history needs.
const WORK_MAX: u64 = 100_000_000;
const PAIRS_MAX: usize = 8_000_000;
const SEGMENTS_MAX: usize = 20_000;
/// Walks that may fail at a segment that is never split.
const WHOLE_MAX: usize = 64;
/// What an oversize segment that went for a request says about their pools, in uses one after the other.
const OVERSIZE_WEIGHT: u32 = 20;

/// A segment, or the reservation of an expandable one, over its whole life.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) small: bool,
    pub(super) stream: u32,
    pub(super) expandable: bool,
    pub(super) addr: u64,
    /// End of what was ever mapped.
    pub(super) end: u64,
    pub(super) alive: bool,
    /// Blocks, free or used.
    pieces: u32,
    /// Allocations over its life.
    pub(super) allocs: u32,
    /// Whether one of its blocks was certainly split.
    pub(super) split: bool,
    /// Its life: entries of the history.
    pub(super) born: usize,
    died: usize,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) segments: Vec<Segment>,
    /// (entry, segment) of every alloc and release.
    of_entry: Vec<(u32, u32)>,
    /// Pairs of segments that are in different pools, lower index first.
    pub(super) different: FxHashSet<(u32, u32)>,
    /// Segments that a call released while frees were pending, for which it would have waited had it
    /// covered the default pool (§5.6).
    pub(super) private: FxHashSet<u32>,
    /// What the order of releases says.
    pub(super) ties: Ties,
    /// The segments of each such stretch in order.
    pub(super) stretches: Vec<Vec<u32>>,
    /// How often one segment was used right after another, lower index first.
    pub(super) followed: FxHashMap<(u32, u32), u32>,
    last_used: Option<u32>,
    pub(super) learnt: Learnt,
    /// Segments that the malloc to come took back from its own pool, if it was that.
    taken: Vec<u32>,
    /// Segments whose blocks are never split (§3.1 rule 1).
    pub(super) whole: FxHashSet<u32>,
    /// The segment that a walk failed at because it is one of those.
    unsplit: Option<u32>,
    /// Releases since the last other entry.
    open: Vec<Release>,
    work: u64,
    /// Whether requests were refused although no limit is known.
    refuses: bool,
    state: State,
}

/// What replays showed.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    pub(super) different: FxHashSet<(u32, u32)>,
    pub(super) same: FxHashSet<(u32, u32)>,
    pub(super) default: FxHashSet<u32>,
    pub(super) private: FxHashSet<u32>,
}

/// One release entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) segment: u32,
    pub(super) small: bool,
    /// Order inside one part: ordinary segments by stream, size and address, then unmaps.
    pub(super) key: (bool, u64, u64, u64),
}

#[derive(Debug, Default)]
struct State {
    /// Free mapped blocks: address → (size, segment).
    free: BTreeMap<u64, (u64, u32)>,
    /// The same by (small, stream, size, address).
    order: BTreeSet<(bool, u32, u64, u64)>,
    used: BTreeMap<u64, (u64, u32)>,
    /// Used blocks whose free was requested: address → segment.
    pending: BTreeMap<u64, u32>,
    /// Ordinary segments that are wholly free.
    idle: BTreeSet<u32>,
    /// Live reservations by (small, stream).
    reservations: BTreeMap<(bool, u32), Vec<u32>>,
    reserved: u64,
    reservation: u64,
}

impl Layout {
    /// Walks through a history that began with an empty cache; `None` if it fits no allocator.
    /// Segments in `whole` are never split; where the history shows another one that is not, it is added
    /// and the walk begins again.
    pub(super) fn of(history: &History, setup: &Setup, whole: &mut FxHashSet<u32>) -> Option<Self> {
        if !setup.start.is_empty() {
            return None;
        }
        for _ in 0..WHOLE_MAX {
            let mut layout = Layout { whole: whole.clone(), ..Layout::default() };
            if layout.walk(history, setup).is_some() {
                layout.settle_conditional();
                return Some(layout);
            }
            whole.insert(layout.unsplit?);
        }
        None
    }

    fn walk(&mut self, history: &History, setup: &Setup) -> Option<()> {
        let layout = self;
        layout.refuses = crate::verify::refuses(history, setup);
        layout.state.reservation = setup.total.saturating_add(setup.total / 8);
        let mut config = &setup.config;
        let mut changes = setup.changes.iter().peekable();
        // Whether a flush may have completed frees after the lookup, and whether releases followed.
        let (mut late, mut released) = (false, false);
        let mut grew = None;
        let causes = causes(history);
        for (i, entry) in history.entries.iter().enumerate() {
            while let Some((at, changed)) = changes.peek()
                && *at <= i
            {
                config = changed;
                changes.next();
            }
            if entry.action.is_release() {
                released = true;
                layout.release(i, entry, history)?;
                continue;
            }
            let cause = causes[i].map(|at| &history.entries[at as usize]);
            layout.end_stretch(cause, config, setup);
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    let small = size::is_small(size::round_size(config, cause?.size));
                    grew = Some(layout.grow(i, entry, small)?);
                }
                Action::Alloc => {
                    let hidden = late && released && grew.is_some();
                    layout.alloc(i, entry, config, grew, hidden)?;
                    (grew, late, released) = (None, false, false);
                }
                Action::Oom => {
                    (grew, late, released) = (None, false, false);
                    layout.taken.clear();
                }
                Action::FreeCompleted => {
                    late |= i > 0 && history.entries[i - 1].action != Action::FreeRequested;
                    layout.free(entry, history)?;
                }
                _ => {
                    (late, released) = (false, false);
                    layout.free(entry, history)?;
                }
            }
            let many = layout.different.len() > PAIRS_MAX || layout.segments.len() > SEGMENTS_MAX;
            if many || layout.work > WORK_MAX {
                return None;
            }
        }
        layout.end_stretch(None, config, setup);
        Some(())
    }

    /// What was passed over because a block was in the way that may never have existed: it did, if its
    /// segment was split elsewhere.
    fn settle_conditional(&mut self) {
        let split = |s: &u32| self.segments[*s as usize].split;
        let (sure, open): (Vec<_>, Vec<_>) =
            self.ties.only_whole.drain().partition(|(a, b)| split(a) || split(b));
        self.different.extend(sure);
        self.ties.only_whole.extend(open);
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of_entry.iter().copied()
    }

    pub(super) fn is_small(&self, segment: u32) -> bool {
        self.segments[segment as usize].small
    }

    /// The segment that held `addr` at an entry of the history.
    pub(super) fn segment_at(&self, addr: u64, at: usize) -> Option<u32> {
        let held = |s: &Segment| s.addr <= addr && addr < s.end && s.born <= at && at <= s.died;
        self.segments.iter().position(held).map(narrow)
    }

    /// Adds what replays showed.
    pub(super) fn apply_learnt(&mut self) {
        self.different.extend(&self.learnt.different);
        self.private.extend(&self.learnt.private);
    }

    /// Number of segments.
    pub(super) fn count(&self) -> usize {
        self.segments.len()
    }

    /// Ends a stretch of releases, with the malloc behind it that may have caused it.
    fn end_stretch(&mut self, cause: Option<&Ev>, config: &Config, setup: &Setup) {
        if self.open.is_empty() {
            return;
        }
        let released = std::mem::take(&mut self.open);
        // Garbage collection and oversize releases take a part only (§4.2, §4.4). Anything else returns
        // all that is free in the pools that it covers. Small segments go only with all others.
        let held: u64 = released.iter().map(|r| r.key.2).sum::<u64>() + self.state.reserved;
        let garbage =
            cause.is_some() && setup.limit.is_some_and(|limit| collects(config, limit, held));
        let oversize = cause.is_some_and(|x| {
            let asked = size::segment_size(config, size::round_size(config, x.size));
            self.refuses || setup.limit.is_some_and(|limit| held.saturating_add(asked) > limit)
        });
        let whole = |r: &Release| {
            let (unmap, size) = (r.key.0, r.key.2);
            unmap || r.small || !(garbage || oversize && size >= config.max_split_size)
        };
        let from = released.iter().position(whole).unwrap_or(released.len());
        let (part, released) = released.split_at(from);
        if oversize {
            // A flush begins with the pool of its request, the default one.
            self.taken = part.iter().chain(released.first()).map(|r| r.segment).collect();
        }
        let kept = self.releasable(config);
        let pending = self.state.pending.len();
        self.work +=
            ((kept.len() + pending) * released.len()) as u64 + (released.len() as u64).pow(2);
        if self.work > WORK_MAX {
            return;
        }
        for r in released {
            for k in kept.iter().filter(|k| **k != r.segment) {
                self.different.insert(pair(r.segment, *k));
            }
        }
        // Pending frees of the pools that a call or a flush covers complete before its releases.
        if !self.state.pending.is_empty() {
            self.private.extend(released.iter().map(|r| r.segment));
        }
        for r in released {
            for p in self.state.pending.values().filter(|p| **p != r.segment) {
                self.different.insert(pair(r.segment, *p));
            }
        }
        stretch::note(released, &mut self.different, &mut self.ties);
        let mut order: Vec<u32> = released.iter().map(|r| r.segment).collect();
        order.dedup();
        self.stretches.push(order);
    }

    /// Segments of which something could be returned to the device.
    fn releasable(&mut self, config: &Config) -> Vec<u32> {
        let mut kept: Vec<u32> = self.state.idle.iter().copied().collect();
        if self.state.reservations.values().all(Vec::is_empty) {
            return kept;
        }
        self.work += self.state.free.len() as u64;
        for (&addr, &(size, segment)) in &self.state.free {
            let s = &self.segments[segment as usize];
            if !s.expandable || kept.last() == Some(&segment) {
                continue;
            }
            let granule = if s.small { size::SMALL_SEGMENT } else { config.large_segment_size };
            let offset = addr - s.addr;
            let first = offset.next_multiple_of(granule);
            if first + granule <= offset + size {
                kept.push(segment);
            }
        }
        kept
    }

    fn grow(&mut self, i: usize, entry: &Ev, small: bool) -> Option<u32> {
        let end = entry.addr.checked_add(entry.size)?;
        self.state.reserved = self.state.reserved.checked_add(entry.size)?;
        let expandable = entry.action == Action::SegmentMap;
        let class = (small, entry.stream);
        let known = self.state.reservations.get(&class).filter(|_| expandable);
        let known = known.and_then(|live| {
            // growth begins at the tail or fills a hole, so never beyond what was mapped once
            let fits = |s: &&u32| {
                let s = &self.segments[**s as usize];
                s.addr <= entry.addr && entry.addr <= s.end
            };
            live.iter().rfind(fits).copied()
        });
        let segment = if let Some(at) = known {
            let mapped = &mut self.segments[at as usize].end;
            *mapped = (*mapped).max(end);
            at
        } else {
            self.segments.push(Segment {
                small,
                stream: entry.stream,
                expandable,
                addr: entry.addr,
                end,
                alive: true,
                pieces: 0,
                allocs: 0,
                split: false,
                born: i,
                died: usize::MAX,
            });
            let new = narrow(self.segments.len() - 1);
            if expandable {
                self.part_reservations(new, class);
            }
            new
        };
        self.add_free(entry.addr, entry.size, segment)?;
        Some(segment)
    }

    /// Two live reservations of one stream and size class are in different pools.
    fn part_reservations(&mut self, new: u32, class: (bool, u32)) {
        let live = self.state.reservations.entry(class).or_default();
        self.different.extend(live.iter().map(|old| pair(*old, new)));
        self.work += live.len() as u64;
        live.push(new);
    }

    /// Adds a free block and joins it with free neighbours of the same segment.
    fn add_free(&mut self, mut addr: u64, mut size: u64, segment: u32) -> Option<()> {
        if let Some((&a, &(s, g))) = self.state.free.range(..addr).next_back()
            && a + s == addr
            && g == segment
        {
            self.take_free(a);
            (addr, size) = (a, size + s);
        }
        if let Some(&(s, g)) = self.state.free.get(&addr.checked_add(size)?)
            && g == segment
        {
            self.take_free(addr + size);
            size += s;
        }
        let s = &mut self.segments[segment as usize];
        s.pieces += 1;
        if !s.expandable && s.addr == addr && s.end - s.addr == size {
            self.state.idle.insert(segment);
        }
        self.state.order.insert((s.small, s.stream, size, addr));
        self.state.free.insert(addr, (size, segment));
        Some(())
    }

    fn take_free(&mut self, addr: u64) -> Option<(u64, u32)> {
        let (size, segment) = self.state.free.remove(&addr)?;
        let s = &mut self.segments[segment as usize];
        s.pieces -= 1;
        self.state.order.remove(&(s.small, s.stream, size, addr));
        self.state.idle.remove(&segment);
        Some((size, segment))
    }

    fn alloc(
        &mut self,
        i: usize,
        entry: &Ev,
        config: &Config,
        grew: Option<u32>,
        hidden: bool,
    ) -> Option<()> {
        let wanted = size::round_size(config, entry.size);
        if !hidden {
            self.note_different(entry, wanted, config, grew);
        }
        let Some((held, segment)) = self.take_free(entry.addr) else {
            return self.note_unsplit(entry.addr);
        };
        let Segment { small, expandable, addr, .. } = self.segments[segment as usize];
        let rest = held.checked_sub(wanted)?;
        // Where nothing is split, blocks begin with a segment or a granule.
        let granule = if small { size::SMALL_SEGMENT } else { config.large_segment_size };
        let offset = entry.addr - addr;
        let inside = if expandable { !offset.is_multiple_of(granule) } else { offset > 0 };
        self.segments[segment as usize].split |= inside;
        let split = if self.whole.contains(&segment) {
            false
        } else if small || expandable || config.expandable_segments {
            rest >= size::MIN_BLOCK
        } else {
            wanted < config.max_split_size && rest > size::SMALL_MAX
        };
        let taken = if split { wanted } else { held };
        if split {
            self.add_free(entry.addr + wanted, rest, segment)?;
        }
        self.state.used.insert(entry.addr, (taken, segment));
        let s = &mut self.segments[segment as usize];
        s.pieces += 1;
        s.allocs += 1;
        self.of_entry.push((narrow(i), segment));
        // Oversize segments come from the pool of the request that they make room for (§4.4, §5.6).
        for taken in std::mem::take(&mut self.taken) {
            if taken != segment {
                *self.followed.entry(pair(taken, segment)).or_default() += OVERSIZE_WEIGHT;
            }
        }
        if let Some(last) = self.last_used.replace(segment).filter(|last| *last != segment) {
            *self.followed.entry(pair(last, segment)).or_default() += 1;
        }
        Some(())
    }

    /// Memory in the middle of a free block was handed out: an expandable segment that grew instead of
    /// splitting the block in front.
    fn note_unsplit(&mut self, addr: u64) -> Option<()> {
        let (_, (_, segment)) = self.state.free.range(..addr).next_back()?;
        let s = &self.segments[*segment as usize];
        let grown = s.expandable && s.addr <= addr && addr < s.end;
        if grown && !self.whole.contains(segment) {
            self.unsplit = Some(*segment);
        }
        None
    }

    /// What the lookup would have taken from the same pool but did not take (§16.3 rule 2).
    fn note_different(&mut self, entry: &Ev, wanted: u64, config: &Config, grew: Option<u32>) {
        let small = size::is_small(wanted);
        let from = (small, entry.stream, wanted, 0);
        let taken = self.state.free.get(&entry.addr).copied();
        let (own, until) = match (grew, taken) {
            (Some(segment), _) => (segment, (small, entry.stream, u64::MAX, u64::MAX)),
            (None, Some((size, segment))) => (segment, (small, entry.stream, size, entry.addr)),
            (None, None) => return,
        };
        if from > until {
            return;
        }
        let (max, rounding) = (config.max_split_size, config.max_non_split_rounding);
        let mut pairs = Vec::new();
        let mut conditional = Vec::new();
        let mut looked_at = 0;
        for &(_, _, size, addr) in self.state.order.range(from..until) {
            let Some(&(_, other)) = self.state.free.get(&addr) else { continue };
            if other == own {
                continue;
            }
            let refused = (wanted < max && size >= max)
                || (wanted >= max && size >= wanted.saturating_add(rounding));
            let expandable = self.segments[other as usize].expandable;
            let passed_over = match grew {
                Some(_) => !(refused || expandable && !config.expandable_segments),
                None => !expandable || self.reach(addr) <= self.reach(entry.addr),
            };
            looked_at += 1;
            if passed_over {
                // A rest exists only if its segment is split at all.
                let s = &self.segments[other as usize];
                if s.split || s.pieces == 1 {
                    pairs.push(pair(other, own));
                } else {
                    conditional.push(pair(other, own));
                }
            }
        }
        self.work += looked_at;
        self.different.extend(pairs);
        self.ties.only_whole.extend(conditional);
    }

    /// Size of a free block and of the unmapped room behind it.
    fn reach(&self, addr: u64) -> u64 {
        let Some(&(size, segment)) = self.state.free.get(&addr) else { return 0 };
        let s = &self.segments[segment as usize];
        if !s.expandable {
            return size;
        }
        let end = addr + size;
        let limit = s.addr.saturating_add(self.state.reservation);
        let next_free = self.state.free.range(end..).next().map_or(limit, |(a, _)| *a);
        let next_used = self.state.used.range(end..).next().map_or(limit, |(a, _)| *a);
        size + next_free.min(next_used).min(limit).saturating_sub(end)
    }

    fn free(&mut self, entry: &Ev, history: &History) -> Option<()> {
        let completes = match entry.action {
            Action::FreeCompleted | Action::Free => true,
            Action::FreeRequested => !history.has_completed,
            // nothing but frees comes here
            _ => return Some(()),
        };
        if !completes && let Some((_, segment)) = self.state.used.get(&entry.addr) {
            self.state.pending.insert(entry.addr, *segment);
        }
        if completes {
            self.state.pending.remove(&entry.addr);
            let (size, segment) = self.state.used.remove(&entry.addr)?;
            self.segments[segment as usize].pieces -= 1;
            self.add_free(entry.addr, size, segment)?;
        }
        Some(())
    }

    fn release(&mut self, i: usize, entry: &Ev, history: &History) -> Option<()> {
        let (&addr, &(size, segment)) = self.state.free.range(..=entry.addr).next_back()?;
        let end = entry.addr.checked_add(entry.size)?;
        if end > addr + size {
            return None;
        }
        self.take_free(addr);
        self.state.reserved = self.state.reserved.checked_sub(entry.size)?;
        let unmap = entry.action == Action::SegmentUnmap;
        let handle = history.streams[entry.stream as usize];
        let key = (unmap, handle, entry.size, if unmap { 0 } else { entry.addr });
        let small = self.is_small(segment);
        self.open.push(Release { segment, small, key });
        self.of_entry.push((narrow(i), segment));
        if addr < entry.addr {
            self.add_free(addr, entry.addr - addr, segment)?;
        }
        if end < addr + size {
            self.add_free(end, addr + size - end, segment)?;
        }
        let s = &mut self.segments[segment as usize];
        if !unmap || s.pieces == 0 {
            s.alive = false;
            s.died = i;
            let class = (s.small, s.stream);
            if let Some(live) = self.state.reservations.get_mut(&class) {
                live.retain(|other| *other != segment);
            }
        }
        Some(())
    }
}

/// Whether garbage collection may run while `held` bytes are held (§4.2).
fn collects(config: &Config, limit: u64, held: u64) -> bool {
    let threshold = config.garbage_collection_threshold;
    #[allow(clippy::cast_precision_loss)] // as PyTorch computes it
    let over = held as f64 > threshold * limit as f64;
    threshold > 0.0 && over
}

/// For each entry the malloc whose releases and growth it belongs to or may belong to.
fn causes(history: &History) -> Vec<Option<u32>> {
    let mut cause = None;
    let mut causes = vec![None; history.len()];
    for (i, e) in history.entries.iter().enumerate().rev() {
        if matches!(e.action, Action::Alloc | Action::Oom) {
            cause = Some(narrow(i));
        } else if !e.action.is_growth() {
            cause = None;
        }
        causes[i] = cause;
    }
    causes
}

/// A pair of segments, lower index first.
pub(super) fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

pub(super) fn narrow(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

//! Where every block of a history lay, without regard to pools (specification §16.3, steps 1 and 2).
//!
//! Addresses alone tell the segment of each allocation. What the lookup passed over, and what a release
//! left, tells which segments cannot be in the same pool.

mod memory;
mod passed_over;
mod releases;

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
pub(in crate::pools) struct Segment {
    pub(in crate::pools) small: bool,
    pub(in crate::pools) stream: u32,
    pub(in crate::pools) expandable: bool,
    pub(in crate::pools) addr: u64,
    /// End of what was ever mapped.
    pub(in crate::pools) end: u64,
    pub(in crate::pools) alive: bool,
    /// Blocks, free or used.
    pieces: u32,
    /// Allocations over its life.
    pub(in crate::pools) allocs: u32,
    /// Whether one of its blocks was certainly split.
    pub(in crate::pools) split: bool,
    /// Its life: entries of the history.
    pub(in crate::pools) born: usize,
    died: usize,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(in crate::pools) struct Layout {
    pub(in crate::pools) segments: Vec<Segment>,
    /// (entry, segment) of every alloc and release.
    of_entry: Vec<(u32, u32)>,
    /// Pairs of segments that are in different pools, lower index first.
    pub(in crate::pools) different: FxHashSet<(u32, u32)>,
    /// Segments that a call released while frees were pending, for which it would have waited had it
    /// covered the default pool (§5.6).
    pub(in crate::pools) private: FxHashSet<u32>,
    /// What the order of releases says.
    pub(in crate::pools) ties: Ties,
    /// The segments of each such stretch in order.
    pub(in crate::pools) stretches: Vec<Vec<u32>>,
    /// How often one segment was used right after another, lower index first.
    pub(in crate::pools) followed: FxHashMap<(u32, u32), u32>,
    last_used: Option<u32>,
    pub(in crate::pools) learnt: Learnt,
    /// Segments that the malloc to come took back from its own pool, if it was that.
    taken: Vec<u32>,
    /// Segments whose blocks are never split (§3.1 rule 1).
    pub(in crate::pools) whole: FxHashSet<u32>,
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
pub(in crate::pools) struct Learnt {
    pub(in crate::pools) different: FxHashSet<(u32, u32)>,
    pub(in crate::pools) same: FxHashSet<(u32, u32)>,
    pub(in crate::pools) default: FxHashSet<u32>,
    pub(in crate::pools) private: FxHashSet<u32>,
}

/// One release entry.
#[derive(Clone, Copy, Debug)]
pub(in crate::pools) struct Release {
    pub(in crate::pools) segment: u32,
    pub(in crate::pools) small: bool,
    /// Order inside one part: ordinary segments by stream, size and address, then unmaps.
    pub(in crate::pools) key: (bool, u64, u64, u64),
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
    pub(in crate::pools) fn of(
        history: &History,
        setup: &Setup,
        whole: &mut FxHashSet<u32>,
    ) -> Option<Self> {
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

    pub(in crate::pools) fn entries(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of_entry.iter().copied()
    }

    pub(in crate::pools) fn is_small(&self, segment: u32) -> bool {
        self.segments[segment as usize].small
    }

    /// The segment that held `addr` at an entry of the history.
    pub(in crate::pools) fn segment_at(&self, addr: u64, at: usize) -> Option<u32> {
        let held = |s: &Segment| s.addr <= addr && addr < s.end && s.born <= at && at <= s.died;
        self.segments.iter().position(held).map(narrow)
    }

    /// Adds what replays showed.
    pub(in crate::pools) fn apply_learnt(&mut self) {
        self.different.extend(&self.learnt.different);
        self.private.extend(&self.learnt.private);
    }

    /// Number of segments.
    pub(in crate::pools) fn count(&self) -> usize {
        self.segments.len()
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
pub(in crate::pools) fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

pub(in crate::pools) fn narrow(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

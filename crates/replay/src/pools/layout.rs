//! Where every block of a history lay, without regard to pools (specification §16.3, steps 1 and 2).
//!
//! Addresses alone tell the segment of each allocation. What the lookup passed over tells which segments
//! cannot be in the same pool.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use vramwise_model::settings::Config;
use vramwise_model::size;
use vramwise_types::Action;

use crate::history::{Ev, History};
use crate::verify::Setup;

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
}

/// A stretch of releases that no malloc caused: the entries `at..end`.
pub(super) type Stretch = (usize, usize);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) segments: Vec<Segment>,
    /// (entry, segment) of every alloc and release.
    of_entry: Vec<(u32, u32)>,
    /// Pairs of segments that are in different pools, lower index first.
    pub(super) different: FxHashSet<(u32, u32)>,
    pub(super) stretches: Vec<Stretch>,
    /// Sort keys of release entries.
    pub(super) releases: FxHashMap<usize, Release>,
    state: State,
}

/// One release entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) segment: u32,
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
    reserved: u64,
    reservation: u64,
}

impl Layout {
    /// Walks through a history that began with an empty cache; `None` if it fits no allocator.
    pub(super) fn of(history: &History, setup: &Setup) -> Option<Self> {
        if !setup.start.is_empty() {
            return None;
        }
        let mut layout = Layout::default();
        layout.state.reservation = setup.total.saturating_add(setup.total / 8);
        let mut config = &setup.config;
        let mut changes = setup.changes.iter().peekable();
        let mut stretch_start = None;
        let mut grew = None;
        let entries = &history.entries;
        for (i, entry) in entries.iter().enumerate() {
            while let Some((at, changed)) = changes.peek()
                && *at <= i
            {
                config = changed;
                changes.next();
            }
            if entry.action.is_release() {
                stretch_start.get_or_insert(i);
                layout.release(i, entry, history)?;
                continue;
            }
            let released = stretch_start.is_some();
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    let cause = entries[i..].iter().find(|e| !e.action.is_growth())?;
                    layout.note_stretch(&mut stretch_start, i, cause, config, setup);
                    let small = size::is_small(size::round_size(config, cause.size));
                    let segment = layout.grow(entry, small);
                    grew = Some((segment, released || grew.is_some_and(|(_, r)| r)));
                }
                Action::Alloc => {
                    layout.note_stretch(&mut stretch_start, i, entry, config, setup);
                    let hidden = released || grew.is_some_and(|(_, r)| r);
                    layout.alloc(i, entry, config, grew.map(|g| g.0), hidden)?;
                    grew = None;
                }
                Action::Oom => {
                    layout.note_stretch(&mut stretch_start, i, entry, config, setup);
                    grew = None;
                }
                _ => {
                    if let Some(start) = stretch_start.take() {
                        layout.stretches.push((start, i));
                    }
                    layout.free(i, entry, history)?;
                }
            }
        }
        if let Some(start) = stretch_start {
            layout.stretches.push((start, entries.len()));
        }
        Some(layout)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of_entry.iter().copied()
    }

    pub(super) fn is_small(&self, segment: u32) -> bool {
        self.segments[segment as usize].small
    }

    /// Ends a stretch of releases at `end`; it counts unless the malloc behind it may have caused it.
    fn note_stretch(
        &mut self,
        start: &mut Option<usize>,
        end: usize,
        cause: &Ev,
        config: &Config,
        setup: &Setup,
    ) {
        let Some(start) = start.take() else { return };
        let released: u64 = 0;
        let asked = size::segment_size(config, size::round_size(config, cause.size));
        let could = setup.limit.is_some_and(|limit| {
            let held: u64 = self.stretch_bytes(start, end) + self.state.reserved + released;
            let garbage = config.garbage_collection_threshold > 0.0;
            garbage || held.saturating_add(asked) > limit
        });
        if !could {
            self.stretches.push((start, end));
        }
    }

    fn stretch_bytes(&self, start: usize, end: usize) -> u64 {
        (start..end).filter_map(|i| self.releases.get(&i)).map(|r| r.key.2).sum()
    }

    fn grow(&mut self, entry: &Ev, small: bool) -> u32 {
        self.state.reserved += entry.size;
        let expandable = entry.action == Action::SegmentMap;
        let known = expandable.then(|| {
            let fits = |s: &Segment| {
                s.alive && s.expandable && s.small == small && s.stream == entry.stream
                    // growth begins at the tail or fills a hole, so never beyond what was mapped once
                    && s.addr <= entry.addr && entry.addr <= s.end
            };
            self.segments.iter().rposition(fits)
        });
        let segment = if let Some(Some(at)) = known {
            let end = &mut self.segments[at].end;
            *end = (*end).max(entry.addr + entry.size);
            narrow(at)
        } else {
            self.segments.push(Segment {
                small,
                stream: entry.stream,
                expandable,
                addr: entry.addr,
                end: entry.addr.saturating_add(entry.size),
                alive: true,
            });
            let new = narrow(self.segments.len() - 1);
            self.part_reservations(new);
            new
        };
        self.add_free(entry.addr, entry.size, segment);
        segment
    }

    /// Two live reservations of one stream and size class are in different pools.
    fn part_reservations(&mut self, new: u32) {
        let Segment { small, stream, expandable, .. } = self.segments[new as usize];
        if !expandable {
            return;
        }
        for (i, s) in self.segments.iter().enumerate() {
            let i = narrow(i);
            if i != new && s.alive && s.expandable && s.small == small && s.stream == stream {
                self.different.insert((i, new));
            }
        }
    }

    /// Adds a free block and joins it with free neighbours of the same segment.
    fn add_free(&mut self, mut addr: u64, mut size: u64, segment: u32) {
        if let Some((&a, &(s, g))) = self.state.free.range(..addr).next_back()
            && a + s == addr
            && g == segment
        {
            self.take_free(a);
            (addr, size) = (a, size + s);
        }
        if let Some(&(s, g)) = self.state.free.get(&(addr + size))
            && g == segment
        {
            self.take_free(addr + size);
            size += s;
        }
        let Segment { small, stream, .. } = self.segments[segment as usize];
        self.state.free.insert(addr, (size, segment));
        self.state.order.insert((small, stream, size, addr));
    }

    fn take_free(&mut self, addr: u64) -> Option<(u64, u32)> {
        let (size, segment) = self.state.free.remove(&addr)?;
        let Segment { small, stream, .. } = self.segments[segment as usize];
        self.state.order.remove(&(small, stream, size, addr));
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
        let (held, segment) = self.take_free(entry.addr)?;
        let Segment { small, expandable, .. } = self.segments[segment as usize];
        let rest = held.checked_sub(wanted)?;
        let split = if small || expandable || config.expandable_segments {
            rest >= size::MIN_BLOCK
        } else {
            wanted < config.max_split_size && rest > size::SMALL_MAX
        };
        let taken = if split { wanted } else { held };
        if split {
            self.add_free(entry.addr + wanted, rest, segment);
        }
        self.state.used.insert(entry.addr, (taken, segment));
        self.of_entry.push((narrow(i), segment));
        Some(())
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
        let (max, rounding) = (config.max_split_size, config.max_non_split_rounding);
        let mut pairs = Vec::new();
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
            if passed_over {
                pairs.push((other.min(own), other.max(own)));
            }
        }
        self.different.extend(pairs);
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

    fn free(&mut self, i: usize, entry: &Ev, history: &History) -> Option<()> {
        let completes = match entry.action {
            Action::FreeCompleted | Action::Free => true,
            Action::FreeRequested => !history.has_completed,
            _ => return Some(()),
        };
        let _ = i;
        if completes {
            let (size, segment) = self.state.used.remove(&entry.addr)?;
            self.add_free(entry.addr, size, segment);
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
        self.state.reserved -= entry.size;
        let unmap = entry.action == Action::SegmentUnmap;
        let handle = history.streams[entry.stream as usize];
        let key = (unmap, handle, entry.size, if unmap { 0 } else { entry.addr });
        self.releases.insert(i, Release { segment, key });
        self.of_entry.push((narrow(i), segment));
        if addr < entry.addr {
            self.add_free(addr, entry.addr - addr, segment);
        }
        if end < addr + size {
            self.add_free(end, addr + size - end, segment);
        }
        let still = |map: &BTreeMap<u64, (u64, u32)>| map.values().any(|(_, s)| *s == segment);
        if !unmap || !(still(&self.state.free) || still(&self.state.used)) {
            self.segments[segment as usize].alive = false;
        }
        Some(())
    }
}

pub(super) fn narrow(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

//! What releases tell: which segments went together, and which stayed although they could have gone.

use super::*;

impl Layout {
    /// Ends a stretch of releases, with the malloc behind it that may have caused it.
    pub(super) fn end_stretch(&mut self, cause: Option<&Ev>, config: &Config, setup: &Setup) {
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
    pub(super) fn releasable(&mut self, config: &Config) -> Vec<u32> {
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

    pub(super) fn release(&mut self, i: usize, entry: &Ev, history: &History) -> Option<()> {
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

//! What lookups tell: memory that a request passed over belongs to another pool (specification §16.3, step 2).

use super::*;

impl Layout {
    /// Memory in the middle of a free block was handed out: an expandable segment that grew instead of
    /// splitting the block in front.
    pub(super) fn note_unsplit(&mut self, addr: u64) -> Option<()> {
        let (_, (_, segment)) = self.state.free.range(..addr).next_back()?;
        let s = &self.segments[*segment as usize];
        let grown = s.expandable && s.addr <= addr && addr < s.end;
        if grown && !self.whole.contains(segment) {
            self.unsplit = Some(*segment);
        }
        None
    }

    /// What the lookup would have taken from the same pool but did not take (§16.3 rule 2).
    pub(super) fn note_different(
        &mut self,
        entry: &Ev,
        wanted: u64,
        config: &Config,
        grew: Option<u32>,
    ) {
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
    pub(super) fn reach(&self, addr: u64) -> u64 {
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
}

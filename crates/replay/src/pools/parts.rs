//! Cutting a stretch of releases into calls and choosing their pools (specification §16.3, step 4).

use rustc_hash::FxHashSet;

use super::layout::{Layout, Stretch};

/// Work that one stretch may cost before the best answer so far is taken.
const NODES_MAX: u32 = 200_000;

/// A run of releases of one pool and size class.
#[derive(Debug)]
struct Part {
    small: bool,
    segments: Vec<u32>,
}

/// The order inside one call: default large, default small, then per private pool small, large.
#[derive(Clone, Debug, Default)]
pub(super) struct CallOrder {
    last: Option<(u32, bool)>,
    /// Private pools of the current call.
    pools: Vec<u32>,
}

impl CallOrder {
    /// Adds a part; says whether it begins a new call.
    pub(super) fn push(&mut self, pool: u32, small: bool) -> bool {
        let fits = match (self.last, pool) {
            (None, _) => false,
            (Some((0, was_small)), 0) => !was_small && small,
            (Some(_), 0) => false,
            (Some((last, was_small)), _) if last == pool => was_small && !small,
            (Some(_), _) => !self.pools.contains(&pool),
        };
        if !fits {
            self.pools.clear();
        }
        if pool != 0 {
            self.pools.push(pool);
        }
        self.last = Some((pool, small));
        !fits
    }
}

/// Chooses the pools of one stretch's segments and enters them into `known`.
pub(super) fn settle(
    layout: &Layout,
    stretch: Stretch,
    known: &mut [Option<u32>],
    pools: &mut u32,
) {
    let parts = cut(layout, stretch, known);
    let mut search = Search {
        layout,
        parts: &parts,
        heard: *pools,
        best_cost: u32::MAX,
        best: Vec::new(),
        nodes: 0,
    };
    search.choose(&mut Vec::new(), &CallOrder::default(), 0, known, *pools);
    for (part, pool) in parts.iter().zip(&search.best) {
        for segment in &part.segments {
            known[*segment as usize] = Some(*pool);
        }
        *pools = (*pools).max(pool + 1);
    }
}

/// Cuts where class or order demands it, and where two segments cannot share a pool.
fn cut(layout: &Layout, (at, end): Stretch, known: &[Option<u32>]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut last_key = None;
    for entry in at..end {
        let Some(release) = layout.releases.get(&entry) else { continue };
        let segment = release.segment;
        let small = layout.is_small(segment);
        let pool = known[segment as usize];
        let joins = parts.last().is_some_and(|part| {
            let together = |s: &u32| {
                !are_different(layout, *s, segment)
                    && match (known[*s as usize], pool) {
                        (Some(a), Some(b)) => a == b,
                        _ => true,
                    }
            };
            let ordered = release.key.0 || last_key < Some(release.key);
            part.small == small && ordered && part.segments.iter().all(together)
        });
        last_key = Some(release.key);
        match parts.last_mut() {
            Some(part) if joins => part.segments.push(segment),
            _ => parts.push(Part { small, segments: vec![segment] }),
        }
    }
    parts
}

fn are_different(layout: &Layout, a: u32, b: u32) -> bool {
    a != b && layout.different.contains(&(a.min(b), a.max(b)))
}

struct Search<'a> {
    layout: &'a Layout,
    parts: &'a [Part],
    /// Pools known before this stretch.
    heard: u32,
    best_cost: u32,
    best: Vec<u32>,
    nodes: u32,
}

impl Search<'_> {
    fn choose(
        &mut self,
        chosen: &mut Vec<u32>,
        order: &CallOrder,
        cost: u32,
        known: &[Option<u32>],
        pools: u32,
    ) {
        self.nodes += 1;
        if cost >= self.best_cost || self.nodes > NODES_MAX {
            return;
        }
        let Some(part) = self.parts.get(chosen.len()) else {
            self.best_cost = cost;
            self.best.clone_from(chosen);
            return;
        };
        let fixed = part.segments.iter().find_map(|s| known[*s as usize]);
        for pool in 0..=pools {
            if fixed.is_some_and(|fixed| fixed != pool) || !self.allowed(chosen, pool, known) {
                continue;
            }
            let mut order = order.clone();
            let before = order.pools.len();
            let new_call = order.push(pool, part.small);
            let new_pool = new_call
                || (pool != 0
                    && order.pools.len() > before
                    && !order.pools[..before].contains(&pool));
            let mut cost = cost;
            if pool >= self.heard && !chosen.contains(&pool) {
                cost += 15;
            }
            cost += if new_call { 10 } else { 0 };
            cost += if new_pool { 2 + u32::from(pool != 0) } else { 0 };
            chosen.push(pool);
            self.choose(chosen, &order, cost, known, pools.max(pool + 1));
            chosen.pop();
        }
    }

    /// Whether the next part may be in `pool`.
    fn allowed(&self, chosen: &[u32], pool: u32, known: &[Option<u32>]) -> bool {
        let part = &self.parts[chosen.len()];
        let twice =
            (chosen.iter().zip(self.parts)).any(|(p, q)| *p == pool && q.small == part.small);
        if twice {
            return false;
        }
        // the two parts of a private pool are neighbours
        let earlier = chosen.iter().rposition(|p| *p == pool);
        if pool != 0 && earlier.is_some_and(|at| at + 1 != chosen.len()) {
            return false;
        }
        let mine: FxHashSet<u32> = part.segments.iter().copied().collect();
        let clash = |other: u32| mine.iter().any(|s| are_different(self.layout, *s, other));
        let known_clash = (0u32..).zip(known).any(|(s, p)| *p == Some(pool) && clash(s));
        let chosen_clash = (chosen.iter().zip(self.parts))
            .any(|(p, q)| *p == pool && q.segments.iter().any(|s| clash(*s)));
        !known_clash && !chosen_clash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_releases_default_large_then_small_then_private_small_then_large() {
        let mut order = CallOrder::default();
        let parts = [(0, false), (0, true), (2, true), (2, false), (1, false)];
        let new: Vec<bool> = parts.iter().map(|(p, s)| order.push(*p, *s)).collect();
        assert_eq!(new, [true, false, false, false, false]);
        assert!(order.push(2, true), "a pool comes once in a call");
        assert!(order.push(0, false));
        assert!(order.push(0, false), "default large again is another call");
    }
}

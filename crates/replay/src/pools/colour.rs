//! A pool for every segment (specification §16.3, steps 3 to 5).

use vramwise_trace::DeviceTrace;

use super::layout::{Layout, Segment, narrow};
use super::parts;

/// The pool of every segment and the number of pools, the default one included.
pub(super) fn assign(
    layout: &Layout,
    device: &DeviceTrace,
    ids: &[(u64, u64)],
) -> (Vec<u32>, usize) {
    let mut known = known_at_end(layout, device, ids);
    let mut pools = narrow(ids.len());
    for stretch in &layout.stretches {
        parts::settle(layout, *stretch, &mut known, &mut pools);
    }
    let neighbours = neighbours(layout);
    while let Some(segment) = most_constrained(&known, &neighbours) {
        let excluded = excluded(segment, &known, &neighbours);
        let pool = (0..).find(|p| !excluded.contains(p)).unwrap_or(0);
        known[segment] = Some(pool);
        pools = pools.max(pool + 1);
    }
    (known.into_iter().map(|p| p.unwrap_or(0)).collect(), pools as usize)
}

/// Segments alive at the end are in the snapshot, with their pool.
fn known_at_end(layout: &Layout, device: &DeviceTrace, ids: &[(u64, u64)]) -> Vec<Option<u32>> {
    let pool_of = |s: &Segment| {
        let inside = |addr: u64| {
            if s.expandable { s.addr <= addr && addr < s.end } else { addr == s.addr }
        };
        let found = device.segments.iter().find(|seg| inside(seg.address))?;
        ids.iter().position(|id| *id == found.pool_id).map(narrow)
    };
    layout.segments.iter().map(|s| if s.alive { pool_of(s) } else { None }).collect()
}

fn neighbours(layout: &Layout) -> Vec<Vec<u32>> {
    let mut neighbours = vec![Vec::new(); layout.segments.len()];
    let mut pairs: Vec<_> = layout.different.iter().copied().collect();
    pairs.sort_unstable();
    for (a, b) in pairs {
        neighbours[a as usize].push(b);
        neighbours[b as usize].push(a);
    }
    neighbours
}

fn excluded(segment: usize, known: &[Option<u32>], neighbours: &[Vec<u32>]) -> Vec<u32> {
    let mut pools: Vec<u32> =
        neighbours[segment].iter().filter_map(|n| known[*n as usize]).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

/// The open segment with most pools excluded, the earliest among equals.
fn most_constrained(known: &[Option<u32>], neighbours: &[Vec<u32>]) -> Option<usize> {
    let open = (0..known.len()).filter(|s| known[*s].is_none());
    open.min_by_key(|s| (usize::MAX - excluded(*s, known, neighbours).len(), *s))
}

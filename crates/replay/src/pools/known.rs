//! Pools of a history that began in mid-run, as far as the segments at its end tell.
//!
//! What lies in a segment that is still there belongs to that segment's pool. Segments that the history
//! returned have no pool in the file; they are taken for the default one.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_model::{PoolIndex, SegmentView};
use vramwise_trace::{DeviceTrace, SegmentKind};
use vramwise_types::Action;

use super::{PoolMap, snapshot_pools};
use crate::history::History;

/// A stretch of memory by its first byte: where it ends, its pool, whether it is of the small half.
type Held = BTreeMap<u64, (u64, PoolIndex, bool)>;

/// The pools by segments; `None` where the file has only the default pool.
pub(crate) fn by_segments(
    history: &History,
    device: &DeviceTrace,
    start: &[SegmentView],
) -> Option<PoolMap> {
    let ids = snapshot_pools(device);
    if ids.len() == 1 {
        return None;
    }
    let at_end: Held = device
        .segments
        .iter()
        .map(|s| {
            let pool = ids.iter().position(|id| *id == s.pool_id).unwrap_or(0);
            let pool = PoolIndex(u32::try_from(pool).unwrap_or(0));
            let end = s.address.saturating_add(s.total_size);
            (s.address, (end, pool, s.kind == SegmentKind::Small))
        })
        .collect();
    let grown = grown(history, &at_end);
    let mut held: Held =
        start.iter().map(|s| (s.addr, (s.addr + s.size, s.pool, s.small))).collect();
    let mut map = PoolMap { ids, ..PoolMap::all_default() };
    let (mut private, mut small_releases) = (FxHashMap::default(), FxHashMap::default());
    for (i, entry) in history.entries.iter().enumerate() {
        let number = u32::try_from(i).unwrap_or(u32::MAX);
        let end = entry.addr.saturating_add(entry.size);
        if entry.action.is_growth() {
            if let Some((pool, small)) = grown.get(&i) {
                held.insert(entry.addr, (end, *pool, *small));
            }
            continue;
        }
        let release = entry.action.is_release();
        if entry.action != Action::Alloc && !release {
            continue;
        }
        if let Some((pool, small)) = around(&held, entry.addr) {
            if pool != PoolIndex::DEFAULT {
                private.insert(number, pool);
            }
            if release {
                small_releases.insert(number, small);
            }
        }
        if release && entry.action == Action::SegmentFree {
            held.remove(&entry.addr);
        }
    }
    map.private = private;
    map.small = small_releases;
    Some(map)
}

fn around(held: &Held, addr: u64) -> Option<(PoolIndex, bool)> {
    let (_, (end, pool, small)) = held.range(..=addr).next_back()?;
    (addr < *end).then_some((*pool, *small))
}

/// Pool and half of the growth entries whose memory is still there at the end, by entry.
fn grown(history: &History, at_end: &Held) -> FxHashMap<usize, (PoolIndex, bool)> {
    let mut grown = FxHashMap::default();
    // Memory that was returned later, as the walk goes back.
    let mut returned: BTreeMap<u64, u64> = BTreeMap::new();
    for (i, entry) in history.entries.iter().enumerate().rev() {
        let end = entry.addr.saturating_add(entry.size);
        if entry.action.is_release() {
            returned.insert(entry.addr, end);
        } else if entry.action.is_growth() {
            let before = returned.range(..end).next_back();
            let overlap = before.filter(|(_, to)| **to > entry.addr).map(|(from, _)| *from);
            match overlap {
                Some(from) if from >= entry.addr => _ = returned.remove(&from),
                Some(_) => {}
                None => _ = around(at_end, entry.addr).map(|known| grown.insert(i, known)),
            }
        }
    }
    grown
}

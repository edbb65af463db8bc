//! Pools of a history whose entries name them, as those of PyTorch 2.12 and later do.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_model::{PoolIndex, size};
use vramwise_trace::DeviceTrace;
use vramwise_types::Action;

use super::{PoolMap, snapshot_pools};
use crate::history::History;
use crate::verify::Setup;

/// The pools as the entries name them; `None` where they do not.
///
/// What they leave open is which pools never split blocks.
pub(crate) fn told(history: &History, device: &DeviceTrace, setup: &Setup) -> Option<PoolMap> {
    if !history.tells_pools() {
        return None;
    }
    let mut map = PoolMap { ids: snapshot_pools(device), told: true, ..PoolMap::all_default() };
    let (mut private, mut small_releases) = (FxHashMap::default(), FxHashMap::default());
    // Size class of memory by its first byte, and where it grew since the last request.
    let mut small: BTreeMap<u64, bool> = setup.start.iter().map(|s| (s.addr, s.small)).collect();
    let mut grown: Vec<u64> = Vec::new();
    for (i, entry) in history.entries.iter().enumerate() {
        let number = u32::try_from(i).unwrap_or(u32::MAX);
        let release = entry.action.is_release();
        if entry.action.is_growth() {
            grown.push(entry.addr);
            continue;
        }
        if release {
            let class = small.range(..=entry.addr).next_back().is_some_and(|(_, small)| *small);
            small_releases.insert(number, class);
        } else if matches!(entry.action, Action::Alloc | Action::Oom) {
            let class = size::is_small(size::round_size(&setup.config, entry.size));
            small.extend(grown.drain(..).map(|addr| (addr, class)));
        } else {
            continue;
        }
        if let Some(pool) = history.told_pool(i).filter(|pool| *pool != PoolIndex::DEFAULT) {
            private.insert(number, pool);
        }
    }
    map.private = private;
    map.small = small_releases;
    Some(map)
}

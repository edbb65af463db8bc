//! Proofs that a history cannot come from PyTorch's caching allocator.
//!
//! Looked for only where the replay diverged: other producers write files of the same shape, and nobody
//! should take figures from a replay of them.

use std::collections::BTreeMap;

use vramwise_model::size::MIN_BLOCK;
use vramwise_types::Action;

use crate::history::History;

/// The first proof, as a sentence; `None` where there is none.
pub(crate) fn proof(history: &History) -> Option<String> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for (i, e) in history.entries.iter().enumerate() {
        let event = history.event_of(i);
        let action = e.action;
        let placed = !matches!(action, Action::Oom);
        if placed && !e.addr.is_multiple_of(MIN_BLOCK) {
            return Some(format!(
                "event {event} ({action}) is at {:#x}, which is no multiple of {MIN_BLOCK} bytes",
                e.addr
            ));
        }
        if (action.is_growth() || action.is_release()) && !e.size.is_multiple_of(MIN_BLOCK) {
            return Some(format!(
                "event {event} ({action}) has {} bytes, no multiple of {MIN_BLOCK}",
                e.size
            ));
        }
        match action {
            Action::Alloc => {
                let end = e.addr.saturating_add(e.size);
                let before = live.range(..end).next_back();
                if let Some((addr, size)) = before.filter(|(addr, size)| *addr + *size > e.addr) {
                    return Some(format!(
                        "event {event} allocates {} bytes at {:#x} although {size} bytes at {addr:#x} \
                         are in use there",
                        e.size, e.addr
                    ));
                }
                live.insert(e.addr, e.size);
            }
            Action::FreeCompleted | Action::Free => {
                live.remove(&e.addr);
            }
            Action::FreeRequested if !history.has_completed => {
                live.remove(&e.addr);
            }
            _ => {}
        }
    }
    None
}

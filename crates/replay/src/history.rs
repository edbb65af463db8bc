//! A device's history as the replay walks it: only the allocator's own entries, streams by index.

use vramwise_model::PoolIndex;
use vramwise_trace::{DeviceTrace, Events};
use vramwise_types::Action;

/// One entry of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ev {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) stream: u32,
    pub(crate) action: Action,
}

/// Addresses and sizes from here on exist on no device (1 EiB).
pub(crate) const BEYOND: u64 = 1 << 60;

impl Ev {
    /// Whether the entry speaks of memory that no device has. The address of a failed request is none.
    fn is_absurd(&self) -> bool {
        self.size >= BEYOND || self.addr >= BEYOND && self.action != Action::Oom
    }
}

/// The allocator's entries of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) entries: Vec<Ev>,
    /// Where entries of the file were left out: (first entry here, entries left out before it).
    skipped: Vec<(u32, u32)>,
    /// Stream handles by index.
    pub(crate) streams: Vec<u64>,
    /// The entry of the file at which the replay ends because no device has such addresses or sizes.
    pub(crate) absurd: Option<(usize, Ev)>,
    /// The first entry whose action is not known: it can have done anything to the memory.
    pub(crate) unknown: Option<usize>,
    /// Whether the file writes `free_requested` and `free_completed` (some producers leave one out).
    pub(crate) has_requested: bool,
    pub(crate) has_completed: bool,
    /// The pool that each entry names, as the index of a known id; empty where entries name none.
    told: Vec<u32>,
}

impl History {
    pub(crate) fn of(device: &DeviceTrace) -> Self {
        let events: &Events = &device.events;
        // The model counts streams from the default one, which need not occur in the file.
        let mut history = History { streams: vec![0], ..History::default() };
        let mut model_index = Vec::with_capacity(events.streams.len());
        for handle in &events.streams {
            let known = history.streams.iter().position(|h| h == handle);
            let at = known.unwrap_or(history.streams.len());
            if known.is_none() {
                history.streams.push(*handle);
            }
            model_index.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        // What lies in a segment may be older than the history, and so may its stream.
        for segment in &device.segments {
            if !history.streams.contains(&segment.stream) {
                history.streams.push(segment.stream);
            }
        }
        history.entries.reserve_exact(events.len());
        let ids = crate::pools::snapshot_pools(device);
        let mut told = events.pool_id.iter().peekable();
        let mut all_told = !events.pool_id.is_empty();
        let mut left_out = 0u32;
        for i in 0..events.len() {
            let action = events.action[i];
            if matches!(action, Action::Snapshot | Action::UserDefined | Action::Other) {
                left_out += 1;
                if action == Action::Other {
                    history.unknown.get_or_insert(i);
                }
                continue;
            }
            let entry = Ev {
                addr: events.addr[i],
                size: events.size[i],
                stream: model_index[events.stream[i] as usize],
                action,
            };
            if entry.is_absurd() {
                history.absurd = Some((i, entry));
                break;
            }
            let here = u32::try_from(history.entries.len()).unwrap_or(u32::MAX);
            if history.skipped.last().map_or(0, |s| s.1) != left_out {
                history.skipped.push((here, left_out));
            }
            history.has_requested |= matches!(action, Action::FreeRequested | Action::Free);
            history.has_completed |= action == Action::FreeCompleted;
            history.entries.push(entry);
            if all_told {
                while told.next_if(|(row, _)| (*row as usize) < i).is_some() {}
                let named = told.peek().filter(|(row, _)| *row as usize == i);
                let pool = named.and_then(|(_, id)| ids.binary_search(id).ok());
                all_told = pool.is_some();
                history.told.push(pool.and_then(|p| u32::try_from(p).ok()).unwrap_or(0));
            }
        }
        if !all_told {
            history.told = Vec::new();
        }
        history
    }

    /// Whether every entry names its pool.
    pub(crate) fn tells_pools(&self) -> bool {
        !self.told.is_empty()
    }

    /// The pool that an entry names.
    pub(crate) fn told_pool(&self, i: usize) -> Option<PoolIndex> {
        self.told.get(i).map(|pool| PoolIndex(*pool))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first entry at event `event` of the file's history or behind it.
    pub(crate) fn entry_at(&self, event: usize) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.event_of(middle) < event {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The position in the file's history of entry `i`.
    pub(crate) fn event_of(&self, i: usize) -> usize {
        let at = self.skipped.partition_point(|s| s.0 as usize <= i);
        i + at.checked_sub(1).map_or(0, |at| self.skipped[at].1 as usize)
    }
}

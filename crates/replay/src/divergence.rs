//! Saying where and how model and recording part.

use vramwise_model::device::Device;
use vramwise_model::{Allocator, Entry};
use vramwise_types::{Action, Human};

use crate::checker::Mismatch;
use crate::history::{Ev, History};

/// The first entry that the model does not reproduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Event of the file; the number of events where the model went on at its end.
    pub event: usize,
    /// What the recording says.
    pub expected: String,
    /// What the model does.
    pub got: String,
    /// What that means, as far as it can be told.
    pub why: String,
    /// The free memory around the place, for people.
    pub context: Vec<String>,
}

pub(crate) fn explain<D: Device>(
    history: &History,
    allocator: &Allocator<D>,
    mismatch: &Mismatch,
) -> Divergence {
    let want = history.entries.get(mismatch.at);
    let stream = |s: u32| history.streams.get(s as usize).copied().unwrap_or(0);
    let expected = want.map_or_else(
        || "the end of the history".to_owned(),
        |e| shown(e.action, e.addr, e.size, stream(e.stream)),
    );
    let got = mismatch.got.map_or_else(
        || "nothing".to_owned(),
        |e| shown(e.action, e.addr, e.size, stream(e.stream)),
    );
    Divergence {
        event: history.event_of(mismatch.at),
        why: why(want, mismatch.got),
        expected,
        got,
        context: want.map_or_else(Vec::new, |e| context(allocator, e)),
    }
}

/// For an entry that speaks of memory beyond any device; the replay ends there.
pub(crate) fn absurd(event: usize, entry: &Ev) -> Divergence {
    Divergence {
        event,
        expected: format!("{} of {} bytes at {:#x}", entry.action, entry.size, entry.addr),
        got: "nothing".to_owned(),
        why: "no device has such an address or size: the file is damaged or made up".to_owned(),
        context: Vec::new(),
    }
}

/// For an entry that cannot stand where it does, whoever serves requests.
pub(crate) fn contradiction(history: &History, at: usize, got: &str) -> Divergence {
    let expected = history.entries.get(at).map_or_else(
        || "the end of the history".to_owned(),
        |e| {
            shown(
                e.action,
                e.addr,
                e.size,
                history.streams.get(e.stream as usize).copied().unwrap_or(0),
            )
        },
    );
    Divergence {
        event: history.event_of(at),
        expected,
        got: got.to_owned(),
        why: "no allocator can have written this: entries are missing, or the file is damaged"
            .to_owned(),
        context: Vec::new(),
    }
}

/// For an entry whose action is not known: nothing can be said of the memory after it.
pub(crate) fn unknown(event: usize) -> Divergence {
    Divergence {
        event,
        expected: "an entry of a kind that is not known".to_owned(),
        got: "nothing".to_owned(),
        why: "what it did to the memory is not known: the file comes from a newer PyTorch or from \
              another program"
            .to_owned(),
        context: Vec::new(),
    }
}

fn shown(action: Action, addr: u64, size: u64, stream: u64) -> String {
    let place = if action == Action::Oom { String::new() } else { format!(" at {addr:#x}") };
    format!("{action} of {size} bytes ({}){place} on stream {stream:#x}", Human(size))
}

fn why(want: Option<&Ev>, got: Option<Entry>) -> String {
    let text = match (want.map(|e| e.action), got.map(|e| e.action)) {
        (None, _) => "the model does more than the history shows",
        (Some(Action::FreeRequested | Action::Free | Action::FreeCompleted), None) => {
            "the block was not allocated at that moment: its allocation is missing from the history"
        }
        (Some(_), None) => "the history has an entry here that no request explains",
        (Some(Action::Alloc), Some(Action::Alloc)) => {
            "another free block was taken: an unseen use of the pool, another setting or version, \
             or a different allocator"
        }
        (Some(Action::Alloc), Some(Action::SegmentAlloc | Action::SegmentMap)) => {
            "the recording found a cached block where the model has none: memory was cached before \
             the recording began, or the settings differ"
        }
        (Some(a), Some(Action::Alloc)) if a.is_growth() => {
            "the recording asked the device although the model finds a cached block: another pool, \
             or other settings"
        }
        (Some(a), Some(_)) if a.is_release() => {
            "memory was returned in an order or amount that the settings do not explain"
        }
        (Some(Action::Alloc), Some(Action::Oom)) => {
            "the recording found memory where the model has none: memory was cached before the \
             recording began, the settings or the version differ, or this is another allocator"
        }
        (Some(Action::Oom), _) => "the request failed in the recording; the capacity may be lower",
        (_, Some(Action::Oom)) => "the request succeeded in the recording; the capacity is higher",
        _ => "the entries differ",
    };
    text.to_owned()
}

/// Largest number of free blocks that are listed.
const CONTEXT_MAX: usize = 8;

/// Free blocks of the stream that the entry's request could have looked at.
fn context<D: Device>(allocator: &Allocator<D>, entry: &Ev) -> Vec<String> {
    let mut free: Vec<(u64, u64)> = allocator
        .segments()
        .into_iter()
        .filter(|s| s.stream.0 == entry.stream)
        .flat_map(|s| s.blocks)
        .filter(|b| b.state == vramwise_model::BlockState::Inactive && b.size >= entry.size)
        .map(|b| (b.size, b.addr))
        .collect();
    free.sort_unstable();
    let shown = free.iter().take(CONTEXT_MAX);
    shown.map(|(size, addr)| format!("free: {size} bytes at {addr:#x}")).collect()
}

//! From a history to the blocks that live across the ends of steps, by who allocated them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_trace::{DeviceTrace, Snapshot, StackId};
use vramwise_types::{Action, Human};

use crate::peak::fold;
use crate::peak::holders::Namer;

/// Who allocated: a stack, or a size where no stack was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) stack: u32,
    pub(super) size: u64,
}

/// A block that is live at the ends of the steps `from..to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
}

/// The blocks of one origin.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) key: Key,
    pub(super) spans: Vec<Span>,
}

/// Frames that are shown of a stack.
const FRAMES: usize = 8;

impl Group {
    /// Its place, and its innermost frames.
    pub(super) fn named(
        &self,
        snapshot: &Snapshot,
        namer: &mut Namer<'_>,
    ) -> (String, Vec<String>) {
        let stack = StackId(self.key.stack);
        if stack == StackId::NONE {
            return (format!("blocks of {} (no stack recorded)", Human(self.key.size)), Vec::new());
        }
        let text = |id| snapshot.strings.get(id);
        let frames = snapshot.stacks.stack(stack).iter().map(|id| snapshot.stacks.frame(*id));
        let python = frames.filter(|f| fold::is_python(text(f.filename)));
        let shown = python
            .take(FRAMES)
            .map(|frame| format!("{}:{} {}", text(frame.filename), frame.line, text(frame.name)));
        (namer.stack(stack), shown.collect())
    }
}

/// All blocks that live across the end of a step; `ends` are numbers of events, ascending. By stack, or else by size.
pub(super) fn groups(device: &DeviceTrace, ends: &[usize], by_stack: bool) -> Vec<Group> {
    let events = &device.events;
    // A block leaves when the program gives it back, even where other streams still use it.
    let requests = events.action.contains(&Action::FreeRequested);
    let mut live: FxHashMap<u64, usize> = FxHashMap::default();
    let mut groups: BTreeMap<Key, Vec<Span>> = BTreeMap::new();
    let mut leave = |from: usize, to: usize| {
        let first = ends.partition_point(|end| *end <= from);
        let last = ends.partition_point(|end| *end <= to);
        if first < last {
            let stack = events.stack.get(from).copied().filter(|_| by_stack);
            let stack = stack.unwrap_or(StackId::NONE);
            let size = events.size[from];
            let by_size = if stack == StackId::NONE { size } else { 0 };
            let span = Span { from: first as u32, to: last as u32, bytes: size };
            groups.entry(Key { stack: stack.0, size: by_size }).or_default().push(span);
        }
    };
    for i in 0..events.len() {
        let addr = events.addr[i];
        match events.action[i] {
            Action::Alloc => {
                if let Some(before) = live.insert(addr, i) {
                    leave(before, i);
                }
            }
            Action::Free | Action::FreeRequested => {
                if let Some(from) = live.remove(&addr) {
                    leave(from, i);
                }
            }
            Action::FreeCompleted if !requests => {
                if let Some(from) = live.remove(&addr) {
                    leave(from, i);
                }
            }
            _ => {}
        }
    }
    let mut rest: Vec<usize> = live.into_values().collect();
    rest.sort_unstable();
    for from in rest {
        leave(from, events.len());
    }
    groups.into_iter().map(|(key, spans)| Group { key, spans }).collect()
}

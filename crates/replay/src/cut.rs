//! The state between two operations of a recording, as a snapshot would have shown it then.
//!
//! A replay that reproduces the history up to there knows the state to the byte. Beyond a divergence the
//! final state is wound back through the history, which knows it up to the sizes of some blocks.

use vramwise_trace::{DeviceTrace, StackId};
use vramwise_types::Action;

use crate::history::History;
use crate::recording::{Solved, VerifyOptions};
use crate::start;
use crate::tables;
use crate::ties::solve;
use crate::verify::Verifier;

/// A recording that can be looked at between any two operations.
pub struct Cuts<'a> {
    device: &'a DeviceTrace,
    history: History,
    solved: Solved,
    /// Entries at which the operations begin that the replay reproduced, ascending.
    begins: Vec<usize>,
}

/// A state, and whether it is known to the byte.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Segments and blocks, with their stacks; the history is empty.
    pub state: DeviceTrace,
    /// Whether a replay reproduced everything up to there.
    pub exact: bool,
}

impl<'a> Cuts<'a> {
    /// Replays the history of a device.
    pub fn new(device: &'a DeviceTrace, options: &VerifyOptions) -> Self {
        let history = History::of(device);
        let solved = solve(&history, device, options, &mut Vec::new());
        let mut begins = Vec::new();
        let verifier = Verifier::new(&history, &solved.setup, &solved.pools);
        verifier.run_until(history.len(), |entry| begins.push(entry));
        Self { device, history, solved, begins }
    }

    /// The last event up to `event` at which an operation begins.
    pub fn begin_before(&self, event: usize) -> usize {
        let entry = self.history.entry_at(event);
        let begin = (0..=entry).rev().find(|i| self.is_boundary(*i)).unwrap_or(0);
        // Entries that are not the allocator's own may be cut off anywhere.
        if begin == entry { event } else { self.history.event_of(begin) }
    }

    /// The first event from `event` on at which an operation begins; the number of events if none does.
    pub fn begin_after(&self, event: usize) -> usize {
        let (entry, end) = (self.history.entry_at(event), self.history.len());
        let begin = (entry..end).find(|i| self.is_boundary(*i)).unwrap_or(end);
        match begin {
            begin if begin == entry => event,
            begin if begin == end => self.device.events.len(),
            begin => self.history.event_of(begin),
        }
    }

    /// The state before the operation that begins at `event`.
    ///
    /// # Errors
    /// Why it cannot be known, in half a sentence.
    pub fn state_before(&self, event: usize) -> Result<Cut, String> {
        if event >= self.device.events.len() {
            let state = DeviceTrace {
                segments: self.device.segments.clone(),
                blocks: self.device.blocks.clone(),
                ..DeviceTrace::default()
            };
            return Ok(Cut { state, exact: true });
        }
        let entry = self.history.entry_at(event);
        let Solved { setup, run, pools } = &self.solved;
        let reproduced = run.mismatch.is_none() || entry < run.reached;
        let (segments, exact) = if reproduced && self.history.absurd.is_none() {
            let verifier = Verifier::new(&self.history, setup, pools);
            (verifier.run_until(entry, |_| {}).allocator.segments(), true)
        } else {
            let ids = crate::pools::snapshot_pools(self.device);
            let rewound =
                start::rebuild_before(entry, &self.history, self.device, &setup.config, &ids);
            let segments = rewound.map_err(|why| {
                let at = self.history.event_of(why.at);
                format!("going back from the end, event {at} cannot be undone ({})", why.what)
            })?;
            return Ok(Cut {
                state: self
                    .with_stacks(tables::state(&segments, &self.history.streams, &ids), event),
                exact: false,
            });
        };
        let state = tables::state(&segments, &self.history.streams, pools.ids());
        Ok(Cut { state: self.with_stacks(state, event), exact })
    }

    fn is_boundary(&self, entry: usize) -> bool {
        match self.begins.last() {
            Some(last) if entry <= *last => self.begins.binary_search(&entry).is_ok(),
            _ => entry >= self.history.len() || self.looks_like_boundary(entry),
        }
    }

    /// Beyond a divergence: growth and releases belong to what follows them, and a free that completes at
    /// once is one operation.
    fn looks_like_boundary(&self, entry: usize) -> bool {
        let entries = &self.history.entries;
        let Some(before) = entry.checked_sub(1).map(|i| entries[i]) else { return true };
        let completes = entries[entry].action == Action::FreeCompleted
            && before.action == Action::FreeRequested
            && before.addr == entries[entry].addr;
        !before.action.is_growth() && !before.action.is_release() && !completes
    }

    /// Gives blocks and segments the stacks of the last entries before `event` that made them; what no
    /// entry made has the stack that the final state shows, if it is still there.
    fn with_stacks(&self, mut state: DeviceTrace, event: usize) -> DeviceTrace {
        let events = &self.device.events;
        if events.stack.is_empty() && self.device.blocks.iter().all(|b| b.stack == StackId::NONE) {
            return state;
        }
        let mut blocks = rustc_hash::FxHashMap::default();
        let mut segments = rustc_hash::FxHashMap::default();
        for segment in &self.device.segments {
            segments.insert(segment.address, segment.stack);
        }
        for block in &self.device.blocks {
            blocks.insert(block.address, block.stack);
        }
        // From the end back: what a later entry made was not there yet.
        for i in (event..events.len()).rev() {
            match events.action[i] {
                Action::Alloc => _ = blocks.remove(&events.addr[i]),
                action if action.is_growth() => _ = segments.remove(&events.addr[i]),
                _ => {}
            }
        }
        for i in 0..event.min(events.len()) {
            match events.action[i] {
                Action::Alloc => _ = blocks.insert(events.addr[i], events.stack_of(i)),
                action if action.is_growth() => {
                    segments.insert(events.addr[i], events.stack_of(i));
                }
                _ => {}
            }
        }
        for segment in &mut state.segments {
            segment.stack = segments.get(&segment.address).copied().unwrap_or(StackId::NONE);
        }
        let used = |b: &&mut vramwise_trace::Block| b.state != vramwise_trace::BlockState::Inactive;
        for block in state.blocks.iter_mut().filter(used) {
            block.stack = blocks.get(&block.address).copied().unwrap_or(StackId::NONE);
        }
        state
    }
}

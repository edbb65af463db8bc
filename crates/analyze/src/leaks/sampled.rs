//! Recordings in which only some steps have stacks, as the recorder of the Python package makes them.
//!
//! In such a history a line keeps as much as ever in the steps without stacks, and nobody sees that it was this line. So
//! those steps are left out: neither what they allocate nor their ends are looked at. What grows by so much in each of
//! the others grows by so much a step.

use vramwise_trace::DeviceTrace;

use super::SomeStacks;
use super::growth::LEAST_ENDS;
use super::lifetimes::Group;
use crate::stacks::{self, Sampled};

/// Which steps are looked at.
pub(super) struct Watched {
    /// Their numbers, ascending.
    pub(super) steps: Vec<usize>,
    /// Whether stacks tell who allocates. Where too few steps have them, sizes do.
    by_stack: bool,
    /// Whether others are left out.
    some: bool,
    /// How many steps have stacks.
    with_stacks: usize,
}

impl Watched {
    /// All steps, or those with stacks where others have none.
    pub(super) fn of(device: &DeviceTrace, ends: &[usize]) -> Self {
        let with = stacks::with_stacks(&shares(device, ends));
        let steps: Vec<usize> = (0..ends.len()).filter(|i| with[*i]).collect();
        let with_stacks = steps.len();
        if with_stacks == ends.len() || with_stacks > LEAST_ENDS {
            return Self { some: with_stacks < ends.len(), steps, by_stack: true, with_stacks };
        }
        Self { steps: (0..ends.len()).collect(), by_stack: false, some: false, with_stacks }
    }

    /// Whether blocks are told apart by stack.
    pub(super) fn by_stack(&self) -> bool {
        self.by_stack
    }

    /// What a reader is told of it; `whole` is what the recording says of itself. `None` where all steps are alike.
    pub(super) fn told(&self, steps: usize, whole: Option<Sampled>) -> Option<SomeStacks> {
        let with = self.with_stacks;
        let have = if with == 1 { "step was" } else { "steps were" };
        let (by_stack, note) = match whole {
            _ if self.some => {
                let note = format!(
                    "{with} of {steps} {have} recorded with stacks: growth is looked for in those"
                );
                (true, note)
            }
            _ if !self.by_stack => {
                let note = format!(
                    "{with} of {steps} {have} recorded with stacks, too few to compare: blocks are told apart by size"
                );
                (false, note)
            }
            // The history has no stack at all.
            Some(whole) if whole.with_stacks.is_empty() => {
                (false, format!("{}: blocks are told apart by size", whole.which()))
            }
            _ => return None,
        };
        let steps_with_stacks = if self.some || !self.by_stack { with } else { 0 };
        Some(SomeStacks { steps_with_stacks, by_stack, note })
    }

    /// Takes away the blocks that were allocated in steps which are left out.
    pub(super) fn only(&self, groups: &mut Vec<Group>) {
        if self.some {
            for group in groups.iter_mut() {
                group.spans.retain(|span| self.steps.binary_search(&(span.from as usize)).is_ok());
            }
            groups.retain(|group| !group.spans.is_empty());
        }
    }
}

/// For each step the share of its allocations that have stacks; nothing where it allocates nothing.
fn shares(device: &DeviceTrace, ends: &[usize]) -> Vec<Option<f64>> {
    let mut begin = 0;
    let share = |end: &usize| {
        let events = begin..(*end).min(device.events.len());
        begin = events.end;
        stacks::share(device, events)
    };
    ends.iter().map(share).collect()
}

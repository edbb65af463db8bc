//! Recordings in which only some steps have stacks, as the recorder of the Python package makes them.
//!
//! In such a history a line keeps as much as ever in the steps without stacks, and nobody sees that it was this line. So
//! those steps are left out: neither what they allocate nor their ends are looked at. What grows by so much in each of
//! the others grows by so much a step.

use vramwise_trace::{DeviceTrace, StackId};
use vramwise_types::Action;

use super::growth::LEAST_ENDS;
use super::lifetimes::Group;

/// Which steps are looked at.
pub(super) struct Watched {
    /// Their numbers, ascending.
    pub(super) steps: Vec<usize>,
    /// Whether stacks tell who allocates. Where too few steps have them, sizes do.
    pub(super) by_stack: bool,
    /// Whether others are left out.
    some: bool,
}

impl Watched {
    /// All steps, or those with stacks where others have none.
    pub(super) fn of(device: &DeviceTrace, ends: &[usize]) -> Self {
        let shares = shares(device, ends);
        let most = shares.iter().flatten().copied().fold(0.0, f64::max);
        // Threads of PyTorch's own have no stacks in any step, so that no step has them for all.
        let with = |share: &Option<f64>| share.is_none_or(|share| share * 4.0 >= most);
        let steps: Vec<usize> = (0..ends.len()).filter(|i| with(&shares[*i])).collect();
        if steps.len() == ends.len() || steps.len() > LEAST_ENDS {
            return Self { some: steps.len() < ends.len(), steps, by_stack: true };
        }
        Self { steps: (0..ends.len()).collect(), by_stack: false, some: false }
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
    let events = &device.events;
    let mut begin = 0;
    let share = |end: &usize| {
        let (from, to) = (begin, (*end).min(events.len()));
        begin = to;
        let allocs = (from..to).filter(|i| events.action[*i] == Action::Alloc);
        let (mut all, mut with) = (0u32, 0u32);
        for i in allocs {
            all += 1;
            with += u32::from(events.stack.get(i).is_some_and(|stack| *stack != StackId::NONE));
        }
        (all > 0).then(|| f64::from(with) / f64::from(all))
    };
    ends.iter().map(share).collect()
}

//! The memory at one moment, laid out by holder.

use vramwise_trace::{BlockState, DeviceTrace, Snapshot, StackId};

use super::category::{Classifier, Decision};
use super::holders::{By, Group, Namer, groups, groups_by};
use super::phase::Phases;
use super::state::{Piece, State};
use super::waste::free_memory;
use super::{Amount, At, CategoryShare, Memory, Options, When};

/// Lays out a state.
pub(super) fn memory(
    snapshot: &Snapshot,
    (number, device): (u32, &DeviceTrace),
    (at, when): (At, When),
    state: &State,
    options: &Options,
) -> Memory {
    let categories = categories(snapshot, (number, device), state, options);
    let groups = match options.by {
        By::Category => category_groups(state, &categories, options.rules_shown),
        By::Phase => phase_groups(snapshot, (number, device), state),
        by => groups(state.allocated(), &mut Namer::new(snapshot, by, options.frames)),
    };
    let mut memory = Memory {
        at,
        when,
        exact: state.exact,
        reserved: state.reserved,
        allocated: Amount::default(),
        requested: 0,
        pending: Amount::default(),
        groups,
        categories: shares(state, categories),
        without_stack: Amount::default(),
        before_recording: Amount::default(),
        free: free_memory(state),
    };
    for block in &state.blocks {
        match block.state {
            BlockState::Inactive => continue,
            BlockState::ActivePendingFree => {
                memory.pending.add(block.size);
                continue;
            }
            BlockState::ActiveAllocated => memory.allocated.add(block.size),
        }
        memory.requested = memory.requested.saturating_add(block.requested);
        if block.stack == StackId::NONE {
            memory.without_stack.add(block.size);
        }
        if block.before {
            memory.before_recording.add(block.size);
        }
    }
    memory
}

/// A decision for each allocated block, in the order of [`State::allocated`].
fn categories(
    snapshot: &Snapshot,
    (number, device): (u32, &DeviceTrace),
    state: &State,
    options: &Options,
) -> Vec<Decision> {
    let mut classifier = Classifier::new(snapshot, number, device, &options.rules);
    classifier.look_at(&state.blocks);
    state.allocated().map(|block| classifier.decide(block)).collect()
}

fn category_groups(state: &State, decisions: &[Decision], with_rules: bool) -> Vec<Group> {
    let mut of_block = decisions.iter();
    groups_by(state.allocated(), |_| match of_block.next() {
        Some(d) if with_rules => format!("{} ({})", d.category, d.rule),
        Some(d) => d.category.clone(),
        None => String::new(),
    })
}

/// The categories with the rules that decided, most bytes first.
fn shares(state: &State, decisions: Vec<Decision>) -> Vec<CategoryShare> {
    let mut sums: std::collections::BTreeMap<Decision, Amount> = std::collections::BTreeMap::new();
    for (block, decision) in state.allocated().zip(decisions) {
        sums.entry(decision).or_default().add(block.size);
    }
    let mut shares: Vec<CategoryShare> = Vec::new();
    for (decision, amount) in sums {
        // Equal categories follow each other.
        if shares.last().is_none_or(|last| last.category != decision.category) {
            let category = decision.category.clone();
            shares.push(CategoryShare { category, total: Amount::default(), rules: Vec::new() });
        }
        if let Some(share) = shares.last_mut() {
            share.total.bytes = share.total.bytes.saturating_add(amount.bytes);
            share.total.blocks += amount.blocks;
            share.rules.push((decision.rule, amount));
        }
    }
    for share in &mut shares {
        share.rules.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.bytes));
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.total.bytes));
    shares
}

fn phase_groups(
    snapshot: &Snapshot,
    (number, device): (u32, &DeviceTrace),
    state: &State,
) -> Vec<Group> {
    let phases = Phases::new(snapshot, number);
    let times = &device.events.time_us;
    let mut names: rustc_hash::FxHashMap<u64, String> = rustc_hash::FxHashMap::default();
    let mut name = |block: &Piece| {
        let Some(time) = block.event.and_then(|e| times.get(e)).copied().filter(|t| *t > 0) else {
            return "(before the recording, or without a time)".to_owned();
        };
        let words = || {
            let phase = phases.at(time);
            match (phase.within.as_slice(), &phase.after) {
                ([], Some((after, times))) => format!("after {after} (no. {times})"),
                ([], None) => "before the first annotation".to_owned(),
                (within, _) => format!("in {}", within.join(" > ")),
            }
        };
        names.entry(time).or_insert_with(words).clone()
    };
    groups_by(state.allocated(), &mut name)
}

//! Steps without annotations: the period of a history.
//!
//! An allocation that occurs a few times, with much the same in between each time, begins a step. Of
//! all such allocations the rarest is taken: a step of training rather than a layer of it. Layers and
//! parameters repeat too, and keep memory each time without leaking. So an allocation inside a module,
//! an optimizer or a constructor begins no step, and what repeats is a step only if it gives most of its
//! memory back.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_trace::{DeviceTrace, Snapshot, StackId};
use vramwise_types::{Action, Human};

use super::growth::LEAST_ENDS;
use super::steps::{StepSource, Steps};
use crate::peak::holders::{By, Namer};

/// Allocations that are tried as the beginning of a step.
const TRIED: usize = 40;
/// Of one number of occurrences at most so many.
const TRIED_ALIKE: usize = 3;
/// Most steps that a period may give.
const MOST: usize = 100_000;
/// Fewest allocations between two beginnings.
const SHORTEST: usize = 4;
/// How alike neighbouring steps must be, from 0 to 1.
const ALIKE: f64 = 0.7;
/// Share of the bytes allocated in the steps that they must have given back by their ends.
const RETURNED: f64 = 0.8;
/// Share of the history that the steps must cover.
const COVERED: f64 = 0.4;

/// What an allocation looks like: its stack, or its size.
type Look = (u32, u64);

/// The steps of a history, by their repetition.
pub(super) fn find(snapshot: &Snapshot, device: &DeviceTrace) -> Option<Steps> {
    let events = &device.events;
    let allocs: Vec<usize> =
        (0..events.len()).filter(|i| events.action[*i] == Action::Alloc).collect();
    let stack = |i: usize| events.stack.get(i).copied().unwrap_or(StackId::NONE);
    let look = |i: usize| -> Look {
        match stack(i) {
            StackId::NONE => (StackId::NONE.0, events.size[i]),
            stack => (stack.0, 0),
        }
    };
    // Sizes vary from step to step; their powers of two less so.
    let coarse = |i: usize| -> Look {
        match look(i) {
            (stack, 0) => (stack, 0),
            (stack, size) => (stack, u64::from(size.max(1).ilog2())),
        }
    };
    let mut at: FxHashMap<Look, Vec<u32>> = FxHashMap::default();
    for (n, i) in allocs.iter().enumerate() {
        at.entry(look(*i)).or_default().push(u32::try_from(n).ok()?);
    }
    let kinds: Vec<u32> = numbered(allocs.iter().map(|i| coarse(*i)));
    let mut by_count: BTreeMap<usize, Vec<(u32, Look)>> = BTreeMap::new();
    let mut looks: Vec<(&Look, &Vec<u32>)> = at.iter().collect();
    looks.sort_unstable_by_key(|(look, _)| **look);
    for (look, places) in looks {
        if (LEAST_ENDS..=MOST).contains(&places.len()) {
            by_count.entry(places.len()).or_default().push((places[0], *look));
        }
    }
    let mut tried = 0;
    for candidates in by_count.values_mut() {
        candidates.sort_unstable();
        for (_, look) in candidates.iter().take(TRIED_ALIKE) {
            if tried == TRIED {
                return None;
            }
            tried += 1;
            let places = &at[look];
            let told = look.0 != StackId::NONE.0 || is_regular(places);
            if told
                && is_period(places, &kinds)
                && !inside(snapshot, StackId(look.0))
                && returns(device, &allocs, places)
            {
                let ends = places.iter().map(|n| allocs[*n as usize]).collect();
                return Some(Steps {
                    source: StepSource::Period(words(snapshot, *look)),
                    ends,
                    outside: 0,
                });
            }
        }
    }
    None
}

/// Whether there is always nearly as much in between: what is asked of sizes, which say less than
/// stacks. Layers of a few steps fail it, since the last of a step is far from the first of the next.
fn is_regular(places: &[u32]) -> bool {
    let stretches: Vec<u32> = places.windows(2).map(|w| w[1] - w[0]).collect();
    // The first step makes what later ones find; the last may be cut off.
    let Some(middle) = stretches.get(1..stretches.len().saturating_sub(1)) else { return false };
    match (middle.iter().min(), middle.iter().max()) {
        (Some(least), Some(most)) if middle.len() >= 3 => *most <= *least + *least / 4,
        _ => false,
    }
}

/// Whether a stack goes through something that is called many times in one step.
fn inside(snapshot: &Snapshot, stack: StackId) -> bool {
    let text = |id| snapshot.strings.get(id);
    if stack == StackId::NONE {
        return false;
    }
    snapshot.stacks.stack(stack).iter().any(|id| {
        let frame = snapshot.stacks.frame(*id);
        let file = text(frame.filename);
        let parts = ["torch/nn/", "torch/optim/", "torch\\nn\\", "torch\\optim\\"];
        parts.iter().any(|part| file.contains(part)) || text(frame.name) == "__init__"
    })
}

/// Whether most of what is allocated from the first place to the last is given back by then.
fn returns(device: &DeviceTrace, allocs: &[usize], places: &[u32]) -> bool {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return false };
    let (first, last) = (allocs[*first as usize], allocs[*last as usize]);
    let events = &device.events;
    let requests = events.action.contains(&Action::FreeRequested);
    let mut live: FxHashMap<u64, u64> = FxHashMap::default();
    let (mut taken, mut returned) = (0u64, 0u64);
    for i in first..last {
        match events.action[i] {
            Action::Alloc => {
                taken = taken.saturating_add(events.size[i]);
                live.insert(events.addr[i], events.size[i]);
            }
            Action::FreeCompleted if requests => {}
            Action::Free | Action::FreeRequested | Action::FreeCompleted => {
                returned = returned.saturating_add(live.remove(&events.addr[i]).unwrap_or(0));
            }
            _ => {}
        }
    }
    returned as f64 >= RETURNED * taken as f64
}

fn words(snapshot: &Snapshot, look: Look) -> String {
    match look {
        (stack, 0) => Namer::new(snapshot, By::Stack, 1).stack(StackId(stack)),
        (_, size) => format!("blocks of {}", Human(size)),
    }
}

/// Numbers for looks, in order of appearance.
fn numbered(looks: impl Iterator<Item = Look>) -> Vec<u32> {
    let mut numbers: FxHashMap<Look, u32> = FxHashMap::default();
    looks
        .map(|look| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(look).or_insert(next)
        })
        .collect()
}

/// Whether the stretches between these places are long enough, cover enough, and are alike.
fn is_period(places: &[u32], kinds: &[u32]) -> bool {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return false };
    let covered = f64::from(last - first);
    if covered < COVERED * kinds.len() as f64 {
        return false;
    }
    let short = places.windows(2).filter(|w| ((w[1] - w[0]) as usize) < SHORTEST).count();
    if short * 10 > places.len() {
        return false;
    }
    let mut sum = 0.0;
    let mut before: Option<BTreeMap<u32, f64>> = None;
    for pair in places.windows(2) {
        let stretch = &kinds[pair[0] as usize..pair[1] as usize];
        let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
        let each = 1.0 / stretch.len().max(1) as f64;
        for kind in stretch {
            *shares.entry(*kind).or_default() += each;
        }
        if let Some(before) = before {
            sum += shares
                .iter()
                .map(|(kind, share)| share.min(before.get(kind).copied().unwrap_or(0.0)))
                .sum::<f64>();
        }
        before = Some(shares);
    }
    let pairs = places.len().saturating_sub(2).max(1) as f64;
    sum / pairs >= ALIKE
}

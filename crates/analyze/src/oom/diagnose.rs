//! From the numbers to a cause, with reasons that a reader can check.

use vramwise_types::{GIB, Human, MIB};

use super::account::{Account, context_most};
use super::cause::Cause;
use super::event::{Event, Form};
use super::knowledge::{self as known, Fact};
use super::phase::Phase;
use super::surroundings::Surroundings;

mod holders;
mod rules;

/// A cause and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diagnosis {
    pub(super) cause: Cause,
    /// From 0 to 1; 0.9 and more only where the arithmetic leaves nothing else.
    pub(super) confidence: f64,
    pub(super) why: Vec<String>,
    pub(super) facts: Vec<Fact>,
}

impl Diagnosis {
    fn new(cause: Cause, confidence: f64, why: impl Into<String>) -> Self {
        Self { cause, confidence, why: vec![why.into()], facts: Vec::new() }
    }

    fn because(mut self, why: impl Into<String>) -> Self {
        self.why.push(why.into());
        self
    }

    fn fact(mut self, fact: Fact) -> Self {
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
        self
    }
}

/// Everything that the diagnosis of an event may look at.
pub(super) struct Case<'a> {
    pub(super) event: &'a Event,
    pub(super) account: Account,
    pub(super) phase: Option<(Phase, &'static str)>,
    pub(super) around: &'a Surroundings,
    /// Another exception followed while the program handled this one.
    pub(super) retried: bool,
}

/// The cause of one event.
pub(super) fn diagnose(case: &Case<'_>) -> Diagnosis {
    match case.event.form {
        Form::CachingAllocator if case.event.numbers.any() => {
            with_facts(case, contradicted(case, caching(case)))
        }
        Form::StreamOrdered if case.event.numbers.any() => stream_ordered(case),
        Form::Mps if case.event.numbers.any() => mps(case),
        _ => super::wordless::diagnose(case),
    }
}

fn caching(case: &Case<'_>) -> Diagnosis {
    let a = &case.account;
    let Some(tried) = a.tried else {
        if case.event.numbers.impossible.contains(&"tried") {
            return rules::beyond_numbers();
        }
        return Diagnosis::new(Cause::Unknown, 0.3, "the text does not say how much was asked for");
    };
    let rules: [fn(&Case<'_>, u64) -> Option<Diagnosis>; 12] = [
        rules::absurd,
        rules::memory_limit,
        rules::more_than_card,
        rules::larger_than_card,
        rules::single_allocation,
        rules::refused_although_free,
        holders::other_process,
        holders::own_outside,
        rules::fragmentation,
        rules::private_pools,
        rules::free_not_told,
        rules::capacity,
    ];
    rules.iter().find_map(|rule| rule(case, tried)).unwrap_or_else(|| {
        Diagnosis::new(
            Cause::Unknown,
            0.3,
            format!(
                "{} was asked for; the figures that would tell the cause are missing",
                Human(tried)
            ),
        )
    })
}

/// Figures that no run can have printed together, or that say nothing: whatever follows from them is a
/// guess.
fn contradicted(case: &Case<'_>, mut found: Diagnosis) -> Diagnosis {
    let a = &case.account;
    let held = a.reserved.max(a.allocated).unwrap_or(0);
    let mut odd = Vec::new();
    if a.tried == Some(0) {
        odd.push("0 bytes were asked for, which never fails".to_owned());
    }
    match a.total {
        Some(0) => odd.push("a card of 0 bytes is none".to_owned()),
        Some(total) => {
            if a.free.is_some_and(|free| free > total.saturating_add(a.slop)) {
                odd.push("more is free than the card has".to_owned());
            }
            // Some more can lie elsewhere; where the driver is known to spill, as much as the host has.
            if held / 4 > total && found.cause != Cause::SystemMemorySpill {
                odd.push(format!("{} are held on a card of {}", Human(held), Human(total)));
            }
        }
        None => {}
    }
    if let (Some(allocated), Some(reserved)) = (a.allocated, a.reserved)
        && allocated > reserved.saturating_add(a.slop)
    {
        odd.push("more is allocated than reserved".to_owned());
    }
    if !odd.is_empty() {
        found.confidence = found.confidence.min(0.2);
        found.why.push(format!("the figures cannot all be right: {}", odd.join("; ")));
    }
    found
}

/// Adds what the numbers say beside the cause.
fn with_facts(case: &Case<'_>, mut found: Diagnosis) -> Diagnosis {
    let a = &case.account;
    if let Some(own) = a.own_listed_as_other {
        found.why.push(format!(
            "the listed process with {} is this one: {}",
            Human(own),
            if a.own_outside_pytorch().is_some_and(|o| o > context_most(a.total.unwrap_or(0)) + GIB)
            {
                "beside what PyTorch reserves the card has no room for another of that size"
            } else {
                "it holds what PyTorch reserves plus a context"
            }
        ));
        found = found.fact(known::PID_NAMESPACE);
    }
    if case.event.numbers.impossible.iter().any(|l| l.starts_with("process")) {
        found.why.push(
            "the memory in use by a process is printed as an impossible number and was not used"
                .to_owned(),
        );
        found = found.fact(known::NVML_SENTINEL);
    }
    if let Some(outside) = a.own_outside_pytorch()
        && outside > context_most(a.total.unwrap_or(0))
        && found.cause != Cause::OwnOutsidePytorch
    {
        found.why.push(format!(
            "this process holds {} outside PyTorch's allocator, more than a context needs",
            Human(outside)
        ));
        found = found.fact(known::DIRECT_USERS);
    }
    if case.retried {
        found.why.push("the program caught the error and another exception followed".to_owned());
        found = found.fact(known::TRACEBACK_HOLDS);
    }
    if a.tried == Some(20 * MIB) {
        found = found.fact(known::SEGMENT_REQUEST);
    }
    found
}

fn stream_ordered(case: &Case<'_>) -> Diagnosis {
    let a = &case.account;
    let (Some(tried), Some(total), Some(allocated)) = (a.tried, a.total, a.allocated) else {
        return Diagnosis::new(Cause::Unknown, 0.4, "the text is cut off before its figures");
    };
    if let Some(found) =
        rules::more_than_card(case, tried).or_else(|| rules::larger_than_card(case, tried))
    {
        return found;
    }
    if let Some(allowed) = a.allowed.filter(|l| *l < total)
        && allocated.saturating_add(tried) > allowed
    {
        return Diagnosis::new(
            Cause::MemoryLimit,
            0.9,
            format!(
                "{} allocated + {} asked for is more than the limit of {}",
                Human(allocated),
                Human(tried),
                Human(allowed)
            ),
        )
        .fact(known::FRACTION);
    }
    let sum = allocated.saturating_add(tried);
    if sum > total {
        return Diagnosis::new(
            Cause::TrueCapacity,
            0.9,
            format!(
                "{} allocated + {} asked for = {}, the card has {}",
                Human(allocated),
                Human(tried),
                Human(sum),
                Human(total)
            ),
        );
    }
    let free = a.free.unwrap_or(0);
    Diagnosis::new(
        Cause::OtherProcess,
        0.55,
        format!(
            "{} allocated + {} asked for would fit into {}, but only {} is free: {} is held by other processes or by the driver's own pool",
            Human(allocated), Human(tried), Human(total), Human(free), Human(total.saturating_sub(allocated).saturating_sub(free))
        ),
    )
    .because("this back end does not say how much of it is its own cache")
}

fn mps(case: &Case<'_>) -> Diagnosis {
    let a = &case.account;
    let other = case.event.numbers.other.map_or(0, |o| o.bytes);
    let (allocated, allowed, tried) =
        (a.allocated.unwrap_or(0), a.allowed.unwrap_or(0), a.tried.unwrap_or(0));
    let sum = allocated.saturating_add(other).saturating_add(tried);
    let arithmetic = format!(
        "{} allocated + {} other allocations + {} asked for = {}, the limit is {}",
        Human(allocated),
        Human(other),
        Human(tried),
        Human(sum),
        Human(allowed)
    );
    let cause = if other > allocated { Cause::MpsOtherAllocations } else { Cause::MpsLimit };
    let confidence = if sum.saturating_add(a.slop) >= allowed { 0.9 } else { 0.5 };
    Diagnosis::new(cause, confidence, arithmetic).fact(known::MPS_LIMIT)
}

//! One explanation for each event of a log.

use std::collections::BTreeMap;

use vramwise_types::{Human, TorchVersion};

use super::account::Account;
use super::advice::{Advice, advise};
use super::cause::Cause;
use super::diagnose::{Case, diagnose};
use super::event::{Event, Kind};
use super::joiner::Log;
use super::knowledge::Fact;
use super::phase::{Phase, phase_before, retried_after, techniques_near};
use super::scan::scan;
use super::stamp::{Stamp, stamp_near};
use super::surroundings::{FoundSettings, Surroundings};
use super::unknown::{UnknownMention, first_mention};

/// What happened, why, and what to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The text as it was read.
    pub event: Event,
    /// The cause.
    pub cause: Cause,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// The reasons, with their arithmetic.
    pub why: Vec<String>,
    /// Documented facts that the reasons lean on.
    pub facts: Vec<Fact>,
    /// What to do, in order of effect.
    pub advice: Vec<Advice>,
    /// What the program was doing, if the traceback tells.
    pub phase: Option<Phase>,
    /// When it happened, where the log's lines have times.
    pub stamp: Option<Stamp>,
}

/// A whole log.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LogReport {
    /// Every out-of-memory text, in order.
    pub explanations: Vec<Explanation>,
    /// Further texts that were found when the list of them was full.
    pub unlisted: usize,
    /// Settings strings that the log sets or recommends, with what is doubtful about them.
    pub settings: Vec<FoundSettings>,
    /// PyTorch's version, if the log names it.
    pub torch_version: Option<TorchVersion>,
    /// Whether there is nothing in it.
    pub is_empty: bool,
    /// Where no text is known: the first line that speaks of missing memory all the same.
    pub unknown: Option<UnknownMention>,
}

impl LogReport {
    /// The explanation that a reader most likely asks for: the first one with figures, else the
    /// first.
    pub fn primary(&self) -> Option<&Explanation> {
        let own = |e: &&Explanation| e.event.numbers.any() && e.event.kind != Kind::OtherFramework;
        self.explanations.iter().find(own).or(self.explanations.first())
    }
}

/// Reads a log and explains every out-of-memory text in it.
pub fn explain_log(text: &str) -> LogReport {
    let log = Log::new(text);
    let (events, unlisted) = scan(&log);
    let mut around = Surroundings::of(&log, &events);
    let oldest_text = events.iter().filter_map(|e| e.age).map(|a| a.to.unwrap_or(a.from)).max();
    around.lint_settings(oldest_text);
    let mut explanations: Vec<Explanation> =
        events.iter().map(|event| explain(&log, event, &around)).collect();
    note_growth(&mut explanations);
    let unknown = if explanations.is_empty() { first_mention(&log) } else { None };
    LogReport {
        explanations,
        torch_version: around.version,
        settings: around.settings,
        unlisted,
        is_empty: log.lines.is_empty(),
        unknown,
    }
}

/// Errors of one process from which growth can be told.
const GROWTH_LEAST: usize = 3;

/// Says so where one process fails again and again with more live memory each time.
fn note_growth(explanations: &mut [Explanation]) {
    let mut groups: BTreeMap<(Kind, Option<u32>, Option<String>), Vec<usize>> = BTreeMap::new();
    for (i, e) in
        explanations.iter().enumerate().filter(|(_, e)| e.event.numbers.allocated.is_some())
    {
        let key = (e.event.kind, e.event.numbers.gpu, e.event.tag.clone());
        groups.entry(key).or_default().push(i);
    }
    for group in groups.into_values().filter(|g| g.len() >= GROWTH_LEAST) {
        let live: Vec<u64> = group
            .iter()
            .filter_map(|i| explanations[*i].event.numbers.allocated.map(|a| a.bytes))
            .collect();
        let (Some(first), Some(last)) = (live.first(), live.last()) else { continue };
        if live.is_sorted() && last - first > first / 100 {
            let note = format!(
                "over the {} errors of this process the live memory grew from {} to {}: something is kept alive between them",
                live.len(),
                Human(*first),
                Human(*last)
            );
            for i in group {
                explanations[i].why.push(note.clone());
            }
        }
    }
}

fn explain(log: &Log<'_>, event: &Event, around: &Surroundings) -> Explanation {
    let phase = phase_before(log, event.index);
    let retried = retried_after(log, event.index);
    let case = Case { event, account: Account::of(&event.numbers), phase, around, retried };
    let found = diagnose(&case);
    let oldest = around.version.or(event.age.map(|a| a.from));
    let advice = advise(&case, &found, techniques_near(log, event.index), oldest);
    Explanation {
        event: event.clone(),
        cause: found.cause,
        confidence: found.confidence,
        why: found.why.clone(),
        facts: found.facts.clone(),
        advice,
        phase: phase.map(|(phase, _)| phase),
        stamp: stamp_near(log, event.index),
    }
}

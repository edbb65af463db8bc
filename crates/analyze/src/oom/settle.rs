//! Which of the texts that were found count: the same again is counted, not listed, and what only repeats
//! or talks about another is left out.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::event::{Event, Form, Kind, Numbers};

/// Texts of one log that are listed; of more it is only said how many there are.
const LISTED_MOST: usize = 10_000;

/// Texts without figures count as the same within so many lines.
const NEAR: usize = 40;

/// What tells texts with figures apart.
type Key = (Kind, Form, Numbers, &'static str);

/// The texts of a log while it is read: each once, with how often it stands there. Its size is bounded,
/// however many there are.
#[derive(Default)]
pub(super) struct Found {
    pub(super) events: Vec<Event>,
    known: FxHashMap<Key, usize>,
    /// Texts that were found when the list was full.
    pub(super) unlisted: usize,
}

impl Found {
    /// Adds an event, or counts it with an equal one.
    pub(super) fn add(&mut self, event: Event) {
        let same = if event.numbers.any() {
            let key = (event.kind, event.form, event.numbers.clone(), event.words);
            let full = self.events.len() >= LISTED_MOST;
            match self.known.entry(key) {
                Entry::Occupied(known) => Some(*known.get()),
                Entry::Vacant(_) if full => None,
                Entry::Vacant(new) => {
                    new.insert(self.events.len());
                    None
                }
            }
        } else {
            let near = self.events.iter().enumerate().rev().take(64).find(|(_, e)| {
                e.kind == event.kind
                    && e.form == event.form
                    && !e.numbers.any()
                    && e.tag == event.tag
                    && e.words == event.words
                    && event.index.abs_diff(e.index) < NEAR
            });
            near.map(|(at, _)| at)
        };
        match same {
            Some(at) => {
                let known = &mut self.events[at];
                known.times += 1;
                known.cut &= event.cut;
                known.hint = known.hint.or(event.hint);
                known.age = known.age.or(event.age);
            }
            None if self.events.len() >= LISTED_MOST => self.unlisted += 1,
            None => self.events.push(event),
        }
    }
}

/// Drops what only repeats or talks about another event.
pub(super) fn settle(mut events: Vec<Event>) -> Vec<Event> {
    let words = |e: &Event| matches!(e.form, Form::Mention | Form::NameOnly);
    // A signal may have had another reason.
    if events.iter().any(|e| !words(e) && e.form != Form::Signal) {
        events.retain(|e| !words(e));
    }
    drop_echoes(&mut events);
    // A driver error right behind a library's, or a bare error beside one with numbers, is the same
    // failure.
    let known: Vec<(usize, Kind, bool)> =
        events.iter().map(|e| (e.index, e.kind, e.numbers.any())).collect();
    events.retain(|e| {
        let echo = e.kind == Kind::Driver
            && e.form == Form::DriverError
            && known
                .iter()
                .any(|(at, kind, _)| *kind != Kind::Driver && e.index.abs_diff(*at) <= 2);
        let bare = !e.numbers.any()
            && e.form == Form::CachingAllocator
            && known.iter().any(|(_, kind, any)| *any && *kind == e.kind);
        !echo && !bare
    });
    events
}

/// Lines within which texts of one process that are not PyTorch's own are about one failure: the kernel,
/// a scheduler and ggml tell theirs in several.
const ECHO: usize = 12;

/// Keeps the first, or the one with figures, of texts that tell of one failure in other words.
fn drop_echoes(events: &mut Vec<Event>) {
    let rank = |e: &Event| match e.form {
        Form::Killed => Some((0, 1)),
        Form::Signal => Some((0, 2)),
        Form::Foreign => Some((1, 1)),
        Form::HostAllocation => Some((2, 1)),
        Form::SharedMemory => Some((3, 1)),
        _ => None,
    };
    let told: Vec<_> = events
        .iter()
        .map(|e| (rank(e), e.index, e.words, e.tag.clone(), e.numbers.tried))
        .collect();
    let mut at = 0;
    events.retain(|e| {
        at += 1;
        let Some((group, weight)) = rank(e) else { return true };
        !told.iter().enumerate().any(|(i, (other, index, words, tag, tried))| {
            let better = other.is_some_and(|(g, w)| {
                g == group && (w, tried.is_none(), i + 1) < (weight, e.numbers.tried.is_none(), at)
            });
            let fits = e.numbers.tried.is_none() || e.numbers.tried == *tried;
            better && fits && *words != e.words && *tag == e.tag && e.index.abs_diff(*index) <= ECHO
        })
    });
}

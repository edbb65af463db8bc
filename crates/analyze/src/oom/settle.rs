//! Which of the texts that were found count: the same again is counted, not listed, and what only repeats
//! or talks about another is left out.

use super::event::{Event, Form, Kind};

/// Adds an event, or counts it with an equal one.
pub(super) fn add(events: &mut Vec<Event>, event: Event) {
    let same = events.iter_mut().rev().take(64).find(|e| {
        e.kind == event.kind
            && e.form == event.form
            && e.numbers == event.numbers
            && (e.tag == event.tag || event.numbers.any())
            && e.words == event.words
            && (event.numbers.any() || event.index.abs_diff(e.index) < 40)
    });
    match same {
        Some(known) => {
            known.times += 1;
            known.cut &= event.cut;
            known.hint = known.hint.or(event.hint);
            known.age = known.age.or(event.age);
        }
        None => events.push(event),
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

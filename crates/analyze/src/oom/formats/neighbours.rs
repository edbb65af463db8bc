//! Memory that ran out elsewhere: other languages' heaps, the host, job schedulers, other frameworks.
//!
//! Logs of training and serving have these beside PyTorch's own errors, or in their place. Each is
//! named for what it is, so that nobody changes the settings of a GPU for the heap of a Java program.

use super::families::FAMILIES;
use super::store;
use crate::oom::amount::Amount;
use crate::oom::event::{Form, Kind, Numbers};
use crate::oom::lines::{compact, undecorated};
use crate::oom::pattern::{Outcome, Value, find, match_at};

/// Where in its line a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Anywhere.
    Anywhere,
    /// Anywhere, if no digit follows.
    Number,
    /// It is all that the program wrote in this line, but for words behind a colon.
    Alone,
}

/// What to do, and why it should help.
type Advice = (&'static str, &'static str);

/// Texts that say the same thing.
pub(in crate::oom) struct Family {
    pub(in crate::oom) kind: Kind,
    pub(in crate::oom) form: Form,
    /// Whose memory it was, for the middle of a sentence.
    pub(in crate::oom) whose: &'static str,
    /// What to do about it; nothing where the cause has advice of its own.
    pub(in crate::oom) advice: &'static [Advice],
    /// How each looks in compact text (`{s}` is the size that was refused, `{i}` any number), and as
    /// a person would quote it.
    pub(super) texts: &'static [(&'static str, Place, &'static str)],
}

/// The family of a text, by its quotation.
pub(in crate::oom) fn family(words: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.texts.iter().any(|(.., quoted)| *quoted == words))
}

/// One that was found: where it begins and ends in the compact line, and what it says.
pub(in crate::oom) struct Found {
    pub(in crate::oom) at: usize,
    pub(in crate::oom) end: usize,
    pub(in crate::oom) family: &'static Family,
    pub(in crate::oom) words: &'static str,
    pub(in crate::oom) numbers: Numbers,
}

/// Parts of which every text has one: most lines have none, and are done with.
const KEYS: [&str; 17] = [
    "resource:m",
    "alloc",
    "kill",
    "137",
    "outof",
    "out_of",
    "exhausted",
    "memoryerr",
    "memoryp",
    "cientmem",
    "e=-9",
    ":-9)",
    "memlimit",
    "jobmem",
    "winerror",
    "ingallav",
    "systemmem",
];

/// All of one line: of its compact text with a little of the next, which begins at `own`, and of the
/// text itself without the writer's tag.
pub(in crate::oom) fn all(hay: &[u8], own: usize, text: &str) -> Vec<Found> {
    let mut out = Vec::new();
    // The standard library searches short strings in text much faster than in bytes.
    if std::str::from_utf8(hay).is_ok_and(|hay| !KEYS.iter().any(|key| hay.contains(key))) {
        return out;
    }
    for family in FAMILIES {
        for (pattern, place, words) in family.texts {
            let lead = pattern.split('{').next().unwrap_or_default();
            if *place == Place::Alone && !is_alone(lead, text) {
                continue;
            }
            let Some(at) = find(hay, lead, 0).filter(|at| *at < own) else { continue };
            let Outcome::Full(values, used) = match_at(pattern, &hay[at..]) else { continue };
            let digit = hay.get(at + used).is_some_and(u8::is_ascii_digit);
            if *place == Place::Number && digit && at + used < own {
                continue;
            }
            let mut numbers = Numbers::default();
            let size = values.iter().find(|v| !matches!(v, Value::Int(_)));
            store(&mut numbers.tried, &mut numbers.impossible, "tried", size);
            if let (Some(Value::Int(bytes)), true) = (values.last(), pattern.ends_with("size{i}")) {
                numbers.tried = Some(Amount { bytes: *bytes, slop: 0 });
            }
            out.push(Found { at, end: at + used, family, words, numbers });
        }
    }
    // RMM raises a MemoryError for the memory of the card.
    if out.iter().any(|f| f.family.kind == Kind::Library) {
        out.retain(|f| f.family.kind != Kind::Cpu);
    }
    out
}

/// Whether a line says nothing else, as Python's `MemoryError` and a shell's `Killed`.
fn is_alone(word: &str, text: &str) -> bool {
    let text = compact(undecorated(text));
    text.strip_prefix(word.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_a_key_and_a_quotation_of_its_own() {
        let texts: Vec<_> = FAMILIES.iter().flat_map(|family| family.texts).collect();
        for (i, (pattern, _, words)) in texts.iter().enumerate() {
            assert!(KEYS.iter().any(|key| pattern.contains(key)), "{pattern}");
            assert!(!texts[..i].iter().any(|(.., earlier)| earlier == words), "{words}");
        }
    }
}

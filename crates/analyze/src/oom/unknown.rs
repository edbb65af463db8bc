//! Words about missing memory in a log in which no known error stands: nobody should read "none found"
//! where somebody else's "out of memory" stands in plain sight.

use super::joiner::Log;

/// A line that speaks of missing memory and is no text that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMention {
    /// The line, from 1.
    pub line: usize,
    /// Its text, its end cut off where it is long.
    pub text: String,
}

/// Words that nobody writes about anything else; in lower case.
const WORDS: [&str; 8] = [
    "cuda oom",
    "out of memory",
    "outofmemory",
    "out-of-memory",
    "insufficient memory",
    "not enough memory",
    "failed to allocate",
    "cannot allocate memory",
];

/// Characters of a line that are shown.
const SHOWN: usize = 160;

/// The first such line.
pub(super) fn first_mention(log: &Log<'_>) -> Option<UnknownMention> {
    let found = log.lines.iter().find(|line| {
        let lower = line.text.to_ascii_lowercase();
        WORDS.iter().any(|words| lower.contains(words))
    })?;
    let text = found.text.trim();
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Some(UnknownMention { line: found.number, text: shown })
}

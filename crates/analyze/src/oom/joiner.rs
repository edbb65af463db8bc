//! Puts a message together that runs over several lines.
//!
//! Lines are taken on one by one, and only those that continue what is being read: a reader says
//! how far it got ([`Reading`]), and a line that does not get it further is left out as somebody
//! else's.

use super::lines::{Line, compact, has_clock, is_progress, tag, undecorated};
use super::pattern::find;

/// How far a reader got in compact text.
#[derive(Clone, Debug)]
pub(super) struct Reading<T> {
    pub(super) value: T,
    /// Bytes that belong to the message, a beginning of its next piece included.
    pub(super) reach: usize,
    /// More could follow.
    pub(super) open: bool,
}

/// Lines of other writers that may stand inside a message.
const SKIPPED_MOST: usize = 12;
/// Lines of one message.
const LINES_MOST: usize = 60;
/// Words by which a message begins; one that is being read does not reach beyond them.
const BEGINNINGS: [&str; 3] = ["outofmemory", "wouldexceedallowedmemory", "youtriedtoallocate"];
/// Compact bytes that a message can have.
const MESSAGE_MOST: usize = 8 << 10;
/// Bytes of a logger's prefix that are compared.
const PREFIX_MOST: usize = 256;
/// A line has to bring the reader this many bytes further (or be used up, or complete the message)
/// to belong to it.
const PROGRESS_LEAST: usize = 3;

/// All lines of a log with their tags.
pub(super) struct Log<'a> {
    pub(super) text: &'a str,
    pub(super) lines: Vec<Line<'a>>,
}

impl<'a> Log<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, lines: super::lines::lines(text) }
    }

    /// Compact text of a line, without the tag.
    pub(super) fn body(&self, index: usize) -> Vec<u8> {
        self.lines.get(index).map_or_else(Vec::new, |l| compact(tag(l.text).1))
    }

    /// The line that may continue line `index`: the next one that is no progress bar and no other
    /// writer's.
    pub(super) fn next_of_same(&self, index: usize) -> Option<usize> {
        let own = tag(self.lines.get(index)?.text).0;
        (index + 1..self.lines.len()).take(SKIPPED_MOST).find(|i| self.may_continue(own, *i))
    }

    /// The beginning of the line that may continue line `index`, without the prefix that a logger
    /// put in front of both. Enough to see a word that is broken over the two lines.
    pub(super) fn overhang(&self, index: usize, body: &[u8], length: usize) -> Vec<u8> {
        let Some(next) = self.next_of_same(index) else { return Vec::new() };
        let text = tag(self.lines[next].text).1;
        let whole = compact(text);
        let common = normal(body).iter().zip(normal(&whole)).take_while(|(a, b)| **a == *b).count();
        let cut = (0..common).rev().find(|i| matches!(whole[*i], b']' | b')' | b':' | b'-'));
        let mut head = match cut {
            Some(cut) if cut >= 3 && common < whole.len() && !has_clock(text) => {
                whole[cut + 1..].to_vec()
            }
            _ => compact(undecorated(text)),
        };
        head.truncate(length);
        head
    }

    /// Whether line `to` may continue line `from`, as far as their writers tell.
    pub(super) fn may_lead_to(&self, from: usize, to: usize) -> bool {
        from == to || self.lines.get(from).is_some_and(|l| self.may_continue(tag(l.text).0, to))
    }

    /// Whether a line begins with a quotation mark.
    pub(super) fn is_quoted(&self, index: usize) -> bool {
        self.lines.get(index).is_some_and(|l| l.text.trim_start().starts_with(['#', '>']))
    }

    fn may_continue(&self, own: Option<&str>, index: usize) -> bool {
        let text = self.lines[index].text;
        if is_progress(text) {
            return false;
        }
        match tag(text).0 {
            None => true,
            other => other == own,
        }
    }

    /// Reads the message that begins at byte `from` of the compact body (given) of line `index`;
    /// says which further lines (by index) belong to it.
    pub(super) fn read<T>(
        &self,
        index: usize,
        body: &[u8],
        from: usize,
        reader: impl Fn(&[u8]) -> Reading<T>,
    ) -> (Reading<T>, Vec<usize>) {
        let from = from.min(body.len());
        let prefix = normal(&body[from.saturating_sub(PREFIX_MOST)..from]);
        let end = body.len().min(from + MESSAGE_MOST);
        let mut buffer = body[from..end].to_vec();
        let mut best = reader(&buffer);
        best.open &= end == body.len();
        let own = self.lines.get(index).and_then(|l| tag(l.text).0);
        let mut taken: Vec<usize> = Vec::new();
        let (mut skipped, mut next) = (0, index + 1);
        while best.open && best.reach == buffer.len() && next < self.lines.len() {
            if buffer.len() >= MESSAGE_MOST || skipped >= SKIPPED_MOST || taken.len() >= LINES_MOST
            {
                break;
            }
            match self.continuation(own, &prefix, next, &buffer, &reader) {
                Some((extended, reading)) => {
                    buffer = extended;
                    best = reading;
                    taken.push(next);
                    skipped = 0;
                }
                None if self.begins_another(own, next) => break,
                None => skipped += 1,
            }
            next += 1;
        }
        (best, taken)
    }

    /// Whether a line of the same writer begins a message of its own.
    fn begins_another(&self, own: Option<&str>, index: usize) -> bool {
        if !self.may_continue(own, index) {
            return false;
        }
        let body = self.body(index);
        BEGINNINGS.iter().any(|words| find(&body, words, 0).is_some())
    }

    /// The buffer with line `index` behind it, if that gets the reader further.
    fn continuation<T>(
        &self,
        own: Option<&str>,
        prefix: &[u8],
        index: usize,
        buffer: &[u8],
        reader: impl Fn(&[u8]) -> Reading<T>,
    ) -> Option<(Vec<u8>, Reading<T>)> {
        if !self.may_continue(own, index) {
            return None;
        }
        let body = tag(self.lines[index].text).1;
        for fragment in fragments(body, prefix) {
            let mut extended = buffer.to_vec();
            extended.extend_from_slice(&fragment[..fragment.len().min(MESSAGE_MOST)]);
            let reading = reader(&extended);
            let gained = reading.reach.saturating_sub(buffer.len());
            let least = if reading.open { PROGRESS_LEAST.min(fragment.len()) } else { 1 };
            if gained >= least {
                return Some((extended, reading));
            }
        }
        None
    }
}

/// What of a line may be the message: all of it, or what is left without quotation marks and
/// loggers' prefixes.
fn fragments(body: &str, prefix: &[u8]) -> Vec<Vec<u8>> {
    let whole = compact(body);
    let bare = compact(undecorated(body));
    // A time is never a part of a message, which a reader that looks for words would take it for.
    let mut out =
        if has_clock(body) { vec![bare, whole.clone()] } else { vec![whole.clone(), bare] };
    // The prefix in front of the message's first line, digits aside, as far as its last bracket or
    // colon.
    let cuts = (0..prefix.len()).rev().filter(|i| matches!(prefix[*i], b']' | b':' | b')' | b'-'));
    let shape = normal(&whole);
    for cut in cuts.take(8) {
        if shape.starts_with(&prefix[..=cut]) {
            out.push(whole[cut + 1..].to_vec());
            break;
        }
    }
    out.retain(|f| !f.is_empty());
    out.dedup();
    out
}

/// The text with every digit as `0`: two lines of one logger differ in the time only.
fn normal(text: &[u8]) -> Vec<u8> {
    text.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }).collect()
}

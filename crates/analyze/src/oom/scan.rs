//! Finds every out-of-memory text in a log, in the order in which they stand there.

use std::collections::BTreeSet;

use super::event::{Event, Form, Kind, Numbers};
use super::formats::caching::{self, Caching};
use super::formats::{host, mps, neighbours, other, phrases, stream_ordered};
use super::joiner::{Log, Reading};
use super::lines::{rank_of, tag};
use super::pattern::find;
use super::settle::{Found, settle};

/// Bytes of the following line that are looked at together with a line, for texts that are wrapped
/// in the middle of the words by which they are found.
const OVERHANG: usize = 64;
/// Texts of one kind that are looked at in one line.
const IN_LINE_MOST: usize = 200;
/// Bytes behind the beginning of a text in which no other begins.
const AROUND: usize = 24;
/// Compact bytes around a phrase in which its companion has to stand.
const NEARBY: usize = 400;

/// Stems of which every text has one in front of its figures; lines without are passed over.
const STEMS: [&str; 17] = [
    "allavail",
    "withcode",
    "memory",
    "killed",
    "zerocode",
    "exitstatus",
    "returncode",
    "memlimit",
    "alloc",
    "oom",
    "nvml",
    "failure",
    "error",
    "buffersize",
    "nativeapi",
    "sigkill",
    "exitcode",
];
/// Length of the longest stem.
const STEM_MOST: usize = 10;

/// All events of a log, and how many more there were than are listed. The same text again is counted, not
/// listed.
pub(super) fn scan(log: &Log<'_>) -> (Vec<Event>, usize) {
    let mut all = Found::default();
    // Lines that belong to a text that began before.
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for index in candidates(log) {
        let mut hay = log.body(index);
        let own = hay.len();
        let overhang = log.overhang(index, &hay, OVERHANG);
        hay.extend_from_slice(&overhang);
        let mut finder =
            Finder { log, index, hay: &hay, own, found: Vec::new(), reach: 0, further: Vec::new() };
        finder.all();
        if finder.found.is_empty() && !used.contains(&index) {
            finder.rest();
        }
        let mut found = finder.found;
        found.sort_by_key(|(at, ..)| *at);
        for (.., event) in found {
            used.extend(event.further.iter().copied());
            all.add(event);
        }
    }
    (settle(all.events), all.unlisted)
}

/// Lines in which a text may begin: those with a stem, the line in front of one, and those that
/// break a stem.
fn candidates(log: &Log<'_>) -> Vec<usize> {
    let mut out: Vec<usize> = Vec::new();
    let mut tail: Vec<u8> = Vec::new();
    for index in 0..log.lines.len() {
        let body = log.body(index);
        let has_stem = contains_stem(&body);
        if has_stem {
            // Its text may begin in the line that it continues, other writers' lines in between.
            out.extend(
                (index.saturating_sub(MIXED)..=index).filter(|i| log.may_lead_to(*i, index)),
            );
        } else if index > 0 {
            let head = undecorated_head(log, index, &body);
            let broken = [tail.as_slice(), head].concat();
            if contains_stem(&broken) || ends_in_stem(&tail) {
                out.push(index - 1);
            }
        }
        tail.clear();
        tail.extend_from_slice(&body[body.len().saturating_sub(STEM_MOST)..]);
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Lines of other writers that are looked across for the beginning of a text.
const MIXED: usize = 6;

fn contains_stem(body: &[u8]) -> bool {
    // The standard library searches short strings in text much faster than in bytes.
    std::str::from_utf8(body).is_ok_and(|text| STEMS.iter().any(|stem| text.contains(stem)))
}

/// Whether the text breaks off inside a stem, after at least two letters.
fn ends_in_stem(tail: &[u8]) -> bool {
    STEMS.iter().any(|stem| (2..stem.len()).any(|n| tail.ends_with(&stem.as_bytes()[..n])))
}

/// The first bytes of a line, quotation marks left out.
fn undecorated_head<'a>(log: &Log<'_>, index: usize, body: &'a [u8]) -> &'a [u8] {
    let marks = body.iter().take_while(|b| matches!(b, b'#' | b'>' | b'"' | b'\'')).count();
    let marks = if log.is_quoted(index) { marks } else { 0 };
    &body[marks..body.len().min(marks + STEM_MOST)]
}

struct Finder<'a, 'b> {
    log: &'a Log<'b>,
    index: usize,
    /// Compact text of the line and a little of the next.
    hay: &'a [u8],
    /// Length of the line's own text: only what begins there counts here.
    own: usize,
    /// Where each begins and ends, and what it is.
    found: Vec<(usize, usize, Event)>,
    /// Length of the message read last.
    reach: usize,
    /// Further lines of the message read last.
    further: Vec<usize>,
}

impl Finder<'_, '_> {
    fn all(&mut self) {
        self.caching();
        self.metal();
        self.stream_ordered();
        self.neighbours();
        self.host();
        self.others();
        self.phrases();
        self.names();
    }

    /// Places where `needle` begins in this line.
    fn places(&self, needle: &str) -> Vec<usize> {
        let mut places = Vec::new();
        let mut from = 0;
        while let Some(at) = find(self.hay, needle, from).filter(|at| *at < self.own) {
            places.push(at);
            from = at + needle.len();
            if places.len() >= IN_LINE_MOST {
                break;
            }
        }
        places
    }

    fn read<T>(&mut self, at: usize, reader: impl Fn(&[u8]) -> Reading<T>) -> Reading<T> {
        let body = &self.hay[..self.own];
        let (reading, further) = self.log.read(self.index, body, at, reader);
        self.further = further;
        self.reach = reading.reach;
        reading
    }

    fn push(
        &mut self,
        at: usize,
        kind: Kind,
        form: Form,
        words: &'static str,
        numbers: Numbers,
        cut: bool,
    ) {
        let line = self.log.lines[self.index];
        let tag = tag(line.text).0.map(str::to_owned);
        let event = Event {
            kind,
            form,
            line: line.number,
            rank: tag.as_deref().and_then(rank_of),
            tag,
            numbers,
            age: None,
            hint: None,
            cut,
            times: 1,
            words,
            index: self.index,
            further: std::mem::take(&mut self.further),
        };
        let length = std::mem::take(&mut self.reach).max(AROUND);
        self.found.push((at, at + length, event));
    }

    /// Whether an event was already found at this place.
    fn taken(&self, at: usize, length: usize) -> bool {
        self.found.iter().any(|(begin, end, _)| *begin < at + length && at < *end)
    }

    fn caching(&mut self) {
        for anchor in self.places(caching::ANCHOR) {
            let Some((at, kind)) = caching::device_before(self.hay, anchor) else { continue };
            let behind = anchor + caching::ANCHOR.len();
            if !caching::tried_follows(self.hay, behind) {
                continue;
            }
            let reading = self.read(at, caching::read);
            let Caching { numbers, beyond_one_exabyte, hint, bare, .. } = reading.value.clone();
            let form =
                if beyond_one_exabyte { Form::BeyondOneExabyte } else { Form::CachingAllocator };
            let incomplete = numbers.allocated.is_none()
                || (numbers.reserved.is_none() && numbers.reserved_unallocated.is_none());
            let words = "out of memory. Tried to allocate";
            self.push(at, kind, form, words, numbers, bare || (incomplete && !beyond_one_exabyte));
            if let Some((.., event)) = self.found.last_mut() {
                event.age = caching::age(kind, &reading.value)
                    .map(|age| caching::narrowed(age, &self.hay[..at]));
                event.hint = hint;
            }
        }
    }

    fn metal(&mut self) {
        for at in self.places(mps::ANCHOR) {
            let numbers = self.read(at, mps::read).value;
            let cut = numbers.tried.is_none();
            self.push(at, Kind::Mps, Form::Mps, "MPS backend out of memory", numbers, cut);
        }
        for at in self.places(mps::BUFFER_ANCHOR) {
            let numbers = self.read(at, mps::read_buffer).value;
            if numbers.tried.is_some() {
                self.push(at, Kind::Mps, Form::MpsBuffer, "Invalid buffer size", numbers, false);
            }
        }
    }

    fn stream_ordered(&mut self) {
        for at in self.places(stream_ordered::ANCHOR) {
            if let Some(numbers) = self.read(at, stream_ordered::read).value {
                let cut = !numbers.any();
                let words = "Allocation on device … would exceed allowed memory";
                self.push(at, Kind::CudaMallocAsync, Form::StreamOrdered, words, numbers, cut);
            }
        }
    }

    fn neighbours(&mut self) {
        let text = tag(self.log.lines[self.index].text).1;
        let all = neighbours::all(self.hay, self.own, text);
        if all.is_empty() || phrases::is_code(&self.hay[..self.own]) {
            return;
        }
        for found in all {
            let (kind, form) = (found.family.kind, found.family.form);
            let talk = form != Form::Signal && phrases::is_talk(&self.hay[..found.at]);
            if talk || self.taken(found.at, 1) {
                continue;
            }
            self.reach = found.end - found.at;
            self.push(found.at, kind, form, found.words, found.numbers, false);
        }
    }

    fn host(&mut self) {
        for text in host::TEXTS {
            for at in self.places(text.anchor) {
                if self.taken(at, text.anchor.len()) {
                    continue;
                }
                if let Some(numbers) = self.read(at, |t| host::read(text, t)).value {
                    let cut = text.form == Form::CpuAllocator && numbers.tried.is_none();
                    self.push(at, Kind::Cpu, text.form, text.words, numbers, cut);
                }
            }
        }
    }

    fn others(&mut self) {
        for text in other::OTHERS {
            for at in self.places(text.anchor) {
                if self.taken(at, text.anchor.len()) {
                    continue;
                }
                let reading = self.read(at, |t| text.read(t));
                if let Some(numbers) = reading.value {
                    self.push(at, text.kind, text.form, text.words, numbers, false);
                }
            }
        }
    }

    fn phrases(&mut self) {
        for phrase in phrases::PHRASES {
            for at in self.places(phrase.text) {
                let companion = phrase.with.is_none_or(|w| find(self.near(at), w, 0).is_some());
                if !companion
                    || self.taken(at, phrase.text.len())
                    || phrases::is_talk(&self.hay[..at])
                {
                    continue;
                }
                let numbers =
                    Numbers { gpu: self.nccl_device(phrase.kind, at), ..Numbers::default() };
                self.push(at, phrase.kind, phrase.form, phrase.words, numbers, false);
            }
        }
    }

    /// NCCL writes `host:pid:tid [device] …`.
    fn nccl_device(&self, kind: Kind, at: usize) -> Option<u32> {
        if kind != Kind::Nccl {
            return None;
        }
        let before = &self.hay[at.saturating_sub(NEARBY)..at];
        let open = before.iter().position(|b| *b == b'[')?;
        let (device, digits) = super::amount::integer(&before[open + 1..])?;
        let closes = before.get(open + 1 + digits) == Some(&b']');
        device.and_then(|d| u32::try_from(d).ok()).filter(|_| closes)
    }

    /// The text around a place.
    fn near(&self, at: usize) -> &[u8] {
        &self.hay[at.saturating_sub(NEARBY)..self.hay.len().min(at + NEARBY)]
    }

    /// The end of an error whose beginning is missing.
    fn rest(&mut self) {
        for anchor in caching::REST_ANCHORS {
            let Some(at) = self.places(anchor).first().copied() else { continue };
            let reading = self.read(at, caching::read_rest);
            if reading.value.numbers.any() {
                let words = "the end of an out-of-memory error";
                self.push(
                    at,
                    Kind::Cuda,
                    Form::CachingAllocator,
                    words,
                    reading.value.numbers,
                    true,
                );
            }
            return;
        }
    }

    /// Bare names and mentions, for logs in which nothing better stands.
    fn names(&mut self) {
        // As the exception is spelt; in compact text "out of memory errors" looks the same.
        if phrases::names_pytorch_s(self.log.lines[self.index].text) {
            for at in self.places("outofmemoryerror") {
                let named = phrases::is_raised(self.hay, at);
                if named && !self.taken(at, 60) {
                    let words = "OutOfMemoryError";
                    self.push(at, Kind::Cuda, Form::NameOnly, words, Numbers::default(), true);
                }
            }
        }
        if phrases::is_code(&self.hay[..self.own]) {
            return;
        }
        for anchor in self.places(caching::ANCHOR) {
            let Some((at, kind)) = caching::device_before(self.hay, anchor) else { continue };
            if !self.taken(at, caching::ANCHOR.len()) && !phrases::is_talk(&self.hay[..at]) {
                self.push(at, kind, Form::Mention, "out of memory", Numbers::default(), true);
            }
        }
    }
}

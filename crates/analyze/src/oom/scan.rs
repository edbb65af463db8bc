//! Finds every out-of-memory text in a log, in the order in which they stand there.

use super::event::{Event, Form, Kind, Numbers};
use super::formats::caching::{self, Caching};
use super::formats::{host, mps, other, phrases, stream_ordered};
use super::joiner::{Log, Reading};
use super::lines::{rank_of, tag};
use super::pattern::find;

/// Bytes of the following line that are looked at together with a line, for texts that are wrapped in the middle
/// of the words by which they are found.
const OVERHANG: usize = 64;
/// Compact bytes that a message can have.
const MESSAGE_MOST: usize = 8 << 10;
/// Events of one log; a log with more repeats itself.
const EVENTS_MOST: usize = 10_000;

/// Stems of which every text has one; lines without are passed over quickly.
const STEMS: [&str; 8] = ["memory", "alloc", "oom", "_o", "nvml", "failure", "error", "result="];

/// All events of a log. The same text again is counted, not listed.
pub(super) fn scan(log: &Log<'_>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for index in 0..log.lines.len() {
        let mut hay = log.body(index);
        let own = hay.len();
        let overhang = log.overhang(index, &hay, OVERHANG);
        hay.extend_from_slice(&overhang);
        if !STEMS.iter().any(|stem| find(&hay, stem, 0).is_some()) {
            continue;
        }
        let mut finder =
            Finder { log, index, hay: &hay, own, found: Vec::new(), further: Vec::new() };
        finder.all();
        let mut found = finder.found;
        found.sort_by_key(|(at, ..)| *at);
        for (_, event) in found {
            add(&mut events, event);
        }
        if events.len() >= EVENTS_MOST {
            break;
        }
    }
    settle(events)
}

/// Adds an event, or counts it with an equal one.
fn add(events: &mut Vec<Event>, event: Event) {
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
fn settle(mut events: Vec<Event>) -> Vec<Event> {
    let real = |e: &Event| !matches!(e.form, Form::Mention | Form::NameOnly);
    if events.iter().any(real) {
        events.retain(real);
    }
    // A driver error right behind a library's, or a bare error beside one with numbers, is the same failure.
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

struct Finder<'a, 'b> {
    log: &'a Log<'b>,
    index: usize,
    /// Compact text of the line and a little of the next.
    hay: &'a [u8],
    /// Length of the line's own text: only what begins there counts here.
    own: usize,
    found: Vec<(usize, Event)>,
    /// Further lines of the message read last.
    further: Vec<usize>,
}

impl Finder<'_, '_> {
    fn all(&mut self) {
        self.caching();
        self.metal();
        self.stream_ordered();
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
        }
        places
    }

    fn read<T>(&mut self, at: usize, reader: impl Fn(&[u8]) -> Reading<T>) -> Reading<T> {
        let (reading, further) =
            self.log.read(self.index, at, |text| reader(&text[..text.len().min(MESSAGE_MOST)]));
        self.further = further;
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
        self.found.push((at, event));
    }

    /// Whether an event was already found at this place.
    fn taken(&self, at: usize, length: usize) -> bool {
        self.found.iter().any(|(p, _)| *p < at + length && at < *p + 24)
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
            if let Some((_, event)) = self.found.last_mut() {
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

    fn host(&mut self) {
        for text in host::TEXTS {
            for at in self.places(text.anchor) {
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
                let companion = phrase.with.is_none_or(|w| find(self.hay, w, 0).is_some());
                if !companion
                    || self.taken(at, phrase.text.len())
                    || phrases::is_talk(&self.hay[..at])
                {
                    continue;
                }
                let numbers = Numbers { gpu: self.nccl_device(phrase.kind), ..Numbers::default() };
                self.push(at, phrase.kind, phrase.form, phrase.words, numbers, false);
            }
        }
    }

    /// NCCL writes `host:pid:tid [device] …`.
    fn nccl_device(&self, kind: Kind) -> Option<u32> {
        if kind != Kind::Nccl {
            return None;
        }
        let open = self.hay.iter().position(|b| *b == b'[')?;
        let digits: Vec<u8> =
            self.hay[open + 1..].iter().copied().take_while(u8::is_ascii_digit).collect();
        let closes = self.hay.get(open + 1 + digits.len()) == Some(&b']');
        std::str::from_utf8(&digits).ok()?.parse().ok().filter(|_| closes)
    }

    /// Bare names and mentions, for logs in which nothing better stands.
    fn names(&mut self) {
        for name in phrases::NAMES {
            for at in self.places(name) {
                if !self.taken(at, name.len() + 40) {
                    self.push(
                        at,
                        Kind::Cuda,
                        Form::NameOnly,
                        "OutOfMemoryError",
                        Numbers::default(),
                        true,
                    );
                }
            }
        }
        for anchor in self.places(caching::ANCHOR) {
            let Some((at, kind)) = caching::device_before(self.hay, anchor) else { continue };
            if !self.taken(at, caching::ANCHOR.len()) && !phrases::is_talk(&self.hay[..at]) {
                self.push(at, kind, Form::Mention, "out of memory", Numbers::default(), true);
            }
        }
    }
}

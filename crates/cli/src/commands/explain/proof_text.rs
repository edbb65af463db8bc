//! What a replay proves about a snapshot, for people.

use std::fmt::Write as _;

use vramwise_analyze::failure::{Device, Failure, PinnedSegment, Proof};
use vramwise_types::Human;

use super::text::Page;
use crate::table::{Column, Table};
use crate::text::{counted, grouped, printable};

impl Page {
    /// One device of a snapshot.
    pub(super) fn device(&self, text: &mut String, file: &str, device: &Device, top: usize) {
        let settings = if device.conf.is_empty() { "default settings" } else { &device.conf };
        let events = counted(device.events as u64, "event");
        let _ = writeln!(
            text,
            "{}  device {}, {events}, {}",
            self.style.bold(&printable(file)),
            device.device,
            printable(settings)
        );
        match &device.proof {
            Proof::Exact(_) => {
                let exact = "A replay reproduces this recording to the byte; what follows is proved \
                             by further replays.";
                let _ = writeln!(text, "{}", self.style.good(exact));
            }
            Proof::None(why) => {
                let not = format!("Nothing is proved here: {}.", printable(why));
                let _ = writeln!(text, "{}", self.style.warn(&not));
            }
        }
        if let Some(sampled) = &device.sampled {
            let note = format!("Stacks: {}.", sampled.sentence());
            for line in super::text::wrapped(&note, self.columns) {
                let _ = writeln!(text, "{}", self.style.warn(&line));
            }
        }
        match &device.failure {
            Some(failure) => self.failure(text, failure, device, top),
            None if device.fails().is_none() => {
                let under =
                    device.capacity.map_or(String::new(), |b| format!(" under {}", Human(b)));
                let not = format!(
                    "Whether a request would run out of memory{under} is not known. vramwise replay --capacity SIZE \
                     replays what can be taken of the recording."
                );
                text.push('\n');
                for line in super::text::wrapped(&not, self.columns) {
                    let _ = writeln!(text, "{line}");
                }
            }
            None => {
                let recorded = device.peak_reserved.map(|bytes| match device.capacity {
                    Some(_) => format!("; the recording had at most {} reserved", Human(bytes)),
                    None => format!("; at most {} was reserved", Human(bytes)),
                });
                let replayed = device
                    .peak_under_capacity
                    .map(|bytes| format!("; a replay under it reserves at most {}", Human(bytes)));
                let peak: String = replayed.into_iter().chain(recorded).collect();
                let (under, ask) = match device.capacity {
                    Some(bytes) => (format!(" under {}", Human(bytes)), ""),
                    None => (String::new(), " --capacity SIZE asks what would happen on less."),
                };
                let _ = writeln!(text, "\nNo request runs out of memory{under}{peak}.{ask}");
            }
        }
        if !device.assumptions.is_empty() {
            let _ = writeln!(text, "\n{}", self.style.bold("assumptions"));
            for assumption in &device.assumptions {
                self.item(text, "  - ", assumption);
            }
        }
        text.push('\n');
    }

    fn failure(&self, text: &mut String, failure: &Failure, device: &Device, top: usize) {
        let a = &failure.account;
        let what = if failure.recorded { "out of memory" } else { "would run out of memory" };
        let mut title = format!(
            "{what} at event {}: {} asked for at {}",
            grouped(failure.event as u64),
            Human(a.asked),
            printable(&failure.place)
        );
        if failure.recorded && device.recorded_failures > 1 {
            let _ = write!(title, " (the first of {})", device.recorded_failures);
        }
        text.push('\n');
        for line in super::text::wrapped(&title, self.columns) {
            let _ = writeln!(text, "{}", self.style.bold(&line));
        }
        let limit = match (failure.limit.given, failure.limit.low == failure.limit.high) {
            (true, _) | (false, true) => Human(failure.limit.low).to_string(),
            _ => format!("{} to {}", Human(failure.limit.low), Human(failure.limit.high)),
        };
        let rows = [
            ("asked of the driver", Some(a.segment)),
            ("allocated", Some(a.allocated).filter(|b| *b > 0)),
            ("waiting for streams", Some(a.pending).filter(|b| *b > 0)),
            ("reserved", Some(a.reserved)),
            ("free in its own pool", Some(a.free_own).filter(|b| *b > 0)),
            ("free on other streams", Some(a.free_streams).filter(|b| *b > 0)),
            ("free in other pools", Some(a.free_pools).filter(|b| *b > 0)),
            ("free on the card", a.device_free),
        ];
        for (label, bytes) in rows {
            if let Some(bytes) = bytes {
                let _ = writeln!(text, "  {label:<24} {:>12}", Human(bytes));
            }
        }
        let name = if failure.limit.given { "limit" } else { "limit, as it follows" };
        let _ = writeln!(text, "  {name:<24} {limit:>12}");
        let cause = self.style.bad(failure.cause.sentence());
        let _ = writeln!(text, "\n  {} {cause}", self.style.bold("cause"));
        let sure = format!("confidence {:.0} %", failure.confidence * 100.0);
        let _ = writeln!(text, "        {}", self.style.dim(&sure));
        for why in &failure.why {
            self.item(text, "  - ", why);
        }
        let _ = writeln!(text, "\n  {}", self.style.bold("what to do, most effective first"));
        for (number, advice) in failure.advice.iter().enumerate() {
            self.item(text, &format!("  {}. ", number + 1), &advice.action);
            let mark = if advice.trial.is_some() && failure.proved { "proved: " } else { "" };
            self.dimmed(text, "     ", &format!("{mark}{}", advice.evidence));
        }
        self.holders(text, failure, top);
        self.pinned(text, &failure.pinned, top);
    }

    fn holders(&self, text: &mut String, failure: &Failure, top: usize) {
        if failure.holders.is_empty() {
            return;
        }
        text.push('\n');
        let mut table = Table::new([
            Column::right("allocated"),
            Column::right("blocks"),
            Column::wrapped("held by, when the request came"),
        ]);
        for holder in failure.holders.iter().take(top) {
            table.row([
                Human(holder.bytes).to_string().into(),
                grouped(holder.blocks).into(),
                holder.place.as_str().into(),
            ]);
        }
        text.push_str(&table.render(self.style, Some(self.columns)));
    }

    fn pinned(&self, text: &mut String, pinned: &[PinnedSegment], top: usize) {
        if pinned.is_empty() {
            return;
        }
        let free: u64 = pinned.iter().map(|s| s.free).sum();
        let title = format!(
            "{} is free in {} that blocks in use keep",
            Human(free),
            counted(pinned.len() as u64, "segment")
        );
        let _ = writeln!(text, "\n{}", self.style.bold(&title));
        for segment in pinned.iter().take(top) {
            let blocks: Vec<String> = segment
                .blocks
                .iter()
                .take(3)
                .map(|b| {
                    let waits = if b.pending { ", waiting for streams" } else { "" };
                    format!("{} at {}{waits}", Human(b.size), b.place)
                })
                .collect();
            let more = match segment.blocks.len().saturating_sub(3) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            let words = format!(
                "{} segment {:#x}, {} free (largest {}): {}{more}",
                Human(segment.size),
                segment.addr,
                Human(segment.free),
                Human(segment.largest_free),
                blocks.join("; ")
            );
            self.item(text, "  - ", &words);
        }
        if pinned.len() > top {
            let more = format!("and {} more (--top N)", pinned.len() - top);
            let _ = writeln!(text, "  {}", self.style.dim(&more));
        }
    }
}

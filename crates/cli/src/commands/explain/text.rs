//! The report of `vramwise explain` for people.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;
use vramwise_analyze::oom::{self, Amount};
use vramwise_types::Human;

use super::ranks::{self, Ranks};
use super::{Explained, Found};
use crate::context::Context;
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{counted, grouped, printable};

/// Up to so many errors are explained in full, each by itself.
const IN_FULL: usize = 3;
/// Columns of text where no terminal says otherwise.
const COLUMNS: usize = 100;

pub(super) fn render(explained: &[Explained], ranks: &Ranks, context: &Context) -> String {
    let page = Page {
        style: context.style(),
        columns: context.width().unwrap_or(COLUMNS).max(40),
        top: context.global.top,
    };
    let mut text = String::new();
    if explained.len() > 1 && ranks.several() {
        page.ranks(&mut text, ranks);
    }
    for one in explained {
        match &one.found {
            Found::Log(report) => page.file(&mut text, &one.file, report, explained.len() > 1),
            Found::Snapshot(devices) => {
                for device in devices {
                    page.device(&mut text, &one.file, device, context.global.top);
                }
            }
        }
    }
    text
}

pub(super) struct Page {
    pub(super) style: Style,
    pub(super) columns: usize,
    /// Rows of a table.
    top: usize,
}

impl Page {
    /// One row an error over all files, and which was the first.
    fn ranks(&self, text: &mut String, ranks: &Ranks) {
        let mut table = Table::new([
            Column::right("rank"),
            Column::left("file"),
            Column::right("at"),
            Column::left("time"),
            Column::right("asked for"),
            Column::left("cause"),
        ]);
        for (i, e) in ranks.errors.iter().enumerate().take(self.top) {
            let time = e.time.as_ref().map_or(String::new(), ranks::shown);
            let first = if ranks.first == Some(i) { " (first)" } else { "" };
            table.row([
                e.rank.map_or(String::new(), |r| r.to_string()).into(),
                e.file.as_str().into(),
                format!("{} {}", if e.in_log { "line" } else { "event" }, e.place).into(),
                format!("{time}{first}").into(),
                e.asked.map_or(String::new(), |b| Human(b).to_string()).into(),
                e.cause.words().into(),
            ]);
        }
        text.push_str(&table.render(self.style, Some(self.columns)));
        text.push_str(&self.more(ranks.errors.len()));
        let words = match ranks.first.map(|i| &ranks.errors[i]) {
            Some(e) => match e.rank {
                Some(rank) => format!("rank {rank} ran out of memory first"),
                None => format!("{} ran out of memory first", printable(&e.file)),
            },
            None => "which was first cannot be told from times in the files".to_owned(),
        };
        let _ = writeln!(text, "{}\n", self.style.bold(&words));
    }

    fn file(&self, text: &mut String, file: &str, report: &oom::LogReport, several: bool) {
        let found = &report.explanations;
        let version = match report.torch_version {
            Some(version) => format!(", PyTorch {version}"),
            None => String::new(),
        };
        if found.is_empty() {
            let file = self.style.bold(&printable(file));
            let why =
                if report.is_empty { "it is empty" } else { "no out-of-memory error was found" };
            let _ = writeln!(text, "{file}: {why}{version}");
            if let Some(unknown) = &report.unknown {
                self.item(text, "  ", &unknown_words(unknown));
            }
        } else if several || found.len() > 1 {
            let errors = match found.len() {
                1 => "1 out-of-memory error".to_owned(),
                n => counted(n as u64, "different out-of-memory error"),
            };
            let more = match report.unlisted {
                0 => String::new(),
                n => format!(
                    " (the list was full then; {} behind it that are none of these)",
                    counted(n as u64, "error")
                ),
            };
            let file = self.style.bold(&printable(file));
            let _ = writeln!(text, "{file}: {errors}{more}{version}\n");
        }
        if found.len() > IN_FULL {
            text.push_str(&self.table(found));
        }
        for explanation in in_full(report) {
            self.explanation(text, explanation);
        }
        self.settings(text, &report.settings);
    }

    /// One row an error.
    fn table(&self, found: &[oom::Explanation]) -> String {
        let mut table = Table::new([
            Column::right("line"),
            Column::right("rank"),
            Column::right("GPU"),
            Column::right("asked for"),
            Column::right("free"),
            Column::right("allocated"),
            Column::left("cause"),
        ]);
        let number = |n: Option<u32>| n.map_or(String::new(), |n| n.to_string());
        let size = |a: Option<Amount>| a.map_or(String::new(), |a| Human(a.bytes).to_string());
        for e in found.iter().take(self.top) {
            let n = &e.event.numbers;
            table.row([
                e.event.line.to_string().into(),
                number(e.event.rank).into(),
                number(n.gpu).into(),
                size(n.tried).into(),
                size(n.free).into(),
                size(n.allocated).into(),
                e.cause.words().into(),
            ]);
        }
        format!("{}{}\n", table.render(self.style, Some(self.columns)), self.more(found.len()))
    }

    /// What is said of the rows that a table leaves out.
    fn more(&self, rows: usize) -> String {
        match rows.saturating_sub(self.top) {
            0 => String::new(),
            n => format!(
                "{}\n",
                self.style.dim(&format!("and {} more (--top N shows more)", grouped(n as u64)))
            ),
        }
    }

    fn explanation(&self, text: &mut String, explanation: &oom::Explanation) {
        let event = &explanation.event;
        let mut place = format!("line {}", event.line);
        if let Some(rank) = event.rank {
            let _ = write!(place, ", rank {rank}");
        }
        if let Some(gpu) = event.numbers.gpu {
            let _ = write!(place, ", GPU {gpu}");
        }
        if let Some(age) = event.age {
            let _ = write!(place, ", text of {age}");
        }
        if event.times > 1 {
            let _ = write!(place, ", {} times", event.times);
        }
        if event.cut {
            place.push_str(", cut off");
        }
        let _ = writeln!(text, "{} ({place})", self.style.bold(&heading(event)));
        self.numbers(text, &event.numbers);
        let cause = self.style.bad(explanation.cause.sentence());
        let _ = writeln!(text, "\n  {} {cause}", self.style.bold("cause"));
        let sure = format!("confidence {:.0} %", explanation.confidence * 100.0);
        let _ = writeln!(text, "        {}", self.style.dim(&sure));
        for why in &explanation.why {
            self.item(text, "  - ", why);
        }
        for fact in &explanation.facts {
            self.item(text, "  - ", &format!("{} [{}]", fact.says, fact.source));
        }
        let _ = writeln!(text, "\n  {}", self.style.bold("what to do, most effective first"));
        for (number, advice) in explanation.advice.iter().enumerate() {
            self.item(text, &format!("  {}. ", number + 1), &advice.action);
            self.dimmed(text, "     ", &advice.evidence);
        }
        text.push('\n');
    }

    fn numbers(&self, text: &mut String, n: &oom::Numbers) {
        let rows: [(&str, Option<Amount>); 10] = [
            ("asked for", n.tried),
            ("card", n.total),
            ("free", n.free),
            ("allocated by PyTorch", n.allocated),
            ("reserved, not allocated", n.cached()),
            ("in private pools", n.private_pools),
            ("this process", n.process_in_use),
            ("allowed", n.allowed),
            ("other allocations", n.other),
            ("active", n.active),
        ];
        for (label, amount) in rows {
            if let Some(amount) = amount {
                let _ = writeln!(text, "  {label:<24} {:>12}", Human(amount.bytes));
            }
        }
        for process in &n.processes {
            let name = match process.pid {
                Some(pid) => format!("process {pid}"),
                None => "a process".to_owned(),
            };
            match process.used {
                Some(used) => {
                    let _ = writeln!(text, "  {name:<24} {:>12}", Human(used.bytes));
                }
                None => {
                    let _ = writeln!(text, "  {name:<24} {:>12}", "unknown");
                }
            }
        }
    }

    fn settings(&self, text: &mut String, settings: &[oom::FoundSettings]) {
        let alike = |a: &oom::FoundSettings, b: &oom::FoundSettings| {
            (&a.name, &a.text, a.in_force) == (&b.name, &b.text, b.in_force)
        };
        for (i, found) in settings.iter().enumerate() {
            // Every process of a job sets the same.
            if settings[..i].iter().any(|earlier| alike(earlier, found)) {
                continue;
            }
            let again = settings[i + 1..].iter().filter(|later| alike(later, found)).count();
            let more = match again {
                0 => String::new(),
                n => format!(" (and {})", counted(n as u64, "more line")),
            };
            let what = if found.in_force { "sets" } else { "recommends" };
            let line = format!("line {} {what} {}={}{more}", found.line, found.name, found.text);
            let _ = writeln!(text, "{}", self.style.bold(&printable(&line)));
            for lint in &found.lints {
                self.item(text, "  - ", &lint.to_string());
            }
        }
    }

    /// A paragraph behind a mark, its further lines indented as far.
    pub(super) fn item(&self, text: &mut String, mark: &str, words: &str) {
        for (i, line) in wrapped(&printable(words), self.columns - mark.len()).iter().enumerate() {
            let lead = if i == 0 { mark.to_owned() } else { " ".repeat(mark.len()) };
            let _ = writeln!(text, "{lead}{line}");
        }
    }

    pub(super) fn dimmed(&self, text: &mut String, lead: &str, words: &str) {
        for line in wrapped(&printable(words), self.columns - lead.len()) {
            let _ = writeln!(text, "{lead}{}", self.style.dim(&line));
        }
    }
}

/// What is said of a line that speaks of missing memory and is no error that is known.
pub(super) fn unknown_words(unknown: &oom::UnknownMention) -> String {
    format!(
        "line {} speaks of missing memory, but is no error that is known here: \"{}\"",
        unknown.line, unknown.text
    )
}

/// What the text is, as a person would call it.
fn heading(event: &oom::Event) -> String {
    match event.form {
        oom::Form::CachingAllocator | oom::Form::BeyondOneExabyte => {
            let device = match event.kind {
                oom::Kind::OtherAccelerator => "accelerator".to_owned(),
                kind => kind.name().to_uppercase(),
            };
            format!("{device} out of memory")
        }
        _ => event.words.to_owned(),
    }
}

/// The explanations that are written out: all of a few; of many the first of each cause.
fn in_full(report: &oom::LogReport) -> Vec<&oom::Explanation> {
    let found = &report.explanations;
    let mut causes = Vec::new();
    found
        .iter()
        .filter(|e| {
            let new = !causes.contains(&e.cause);
            causes.push(e.cause);
            found.len() <= IN_FULL || new
        })
        .collect()
}

/// The words in lines of at most `columns`, longer words by themselves.
pub(super) fn wrapped(words: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        if let Some(line) = lines.last_mut()
            && (line.is_empty() || line.width() + 1 + word.width() <= columns)
        {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        lines.push(word.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_none_is_lost() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdefgh i", 4), ["abcdefgh", "i"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}

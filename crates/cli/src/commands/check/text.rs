//! The report of `vramwise check` for people.

use std::fmt::Write as _;

use super::gates::{Outcome, Verdict};
use crate::context::Context;
use crate::several::Unreadable;
use crate::style::Paint;
use crate::table::{Cell, Column, Table};
use crate::text::{counted, printable};

pub(super) fn render(verdicts: &[Verdict], unreadable: &[Unreadable], context: &Context) -> String {
    let style = context.style();
    let mut table = Table::new([
        Column::left(""),
        Column::wrapped("file"),
        Column::right("device"),
        Column::left("check"),
        Column::right("measured"),
        Column::right("limit"),
    ]);
    for v in verdicts {
        let (word, paint) = match v.outcome {
            Outcome::Passed => ("ok", Paint::Good),
            Outcome::Failed => ("FAILED", Paint::Bad),
            Outcome::Unchecked => ("UNCHECKED", Paint::Bad),
        };
        table.row([
            Cell::painted(word, paint),
            v.file.as_str().into(),
            v.device.to_string().into(),
            v.check.into(),
            v.value.as_str().into(),
            v.limit.as_str().into(),
        ]);
    }
    let mut text = table.render(style, context.width());
    let reasons: Vec<_> = verdicts.iter().filter(|v| v.reason.is_some()).collect();
    if !reasons.is_empty() {
        text.push('\n');
    }
    for v in reasons {
        let reason = printable(v.reason.as_deref().unwrap_or("")).into_owned();
        let reason = if v.passed() { style.warn(&reason) } else { style.bad(&reason) };
        let file = printable(&v.file);
        let _ = writeln!(text, "  {file}, device {}, {}: {reason}", v.device, v.check);
    }
    let count = |outcome| verdicts.iter().filter(|v| v.outcome == outcome).count() as u64;
    let (failed, unchecked) = (count(Outcome::Failed), count(Outcome::Unchecked));
    let files = unreadable.len() as u64;
    let parts: Vec<String> = [
        (failed, format!("{} failed", counted(failed, "check"))),
        (unchecked, format!("{} could not be made", counted(unchecked, "check"))),
        (files, format!("{} could not be read", counted(files, "file"))),
    ]
    .into_iter()
    .filter_map(|(n, words)| (n > 0).then_some(words))
    .collect();
    let _ = match parts.as_slice() {
        [] => writeln!(text, "\n{}", style.good("within all limits")),
        parts => writeln!(text, "\n{}", style.bad(&parts.join(", "))),
    };
    text
}

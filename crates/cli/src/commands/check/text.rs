//! The report of `vramwise check` for people.

use std::fmt::Write as _;

use super::gates::Verdict;
use crate::context::Context;
use crate::style::Paint;
use crate::table::{Cell, Column, Table};
use crate::text::{counted, printable};

pub(super) fn render(verdicts: &[Verdict], context: &Context) -> String {
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
        let (word, paint) = if v.passed { ("ok", Paint::Good) } else { ("FAILED", Paint::Bad) };
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
        let reason = if v.passed { style.warn(&reason) } else { style.bad(&reason) };
        let file = printable(&v.file);
        let _ = writeln!(text, "  {file}, device {}, {}: {reason}", v.device, v.check);
    }
    let failed = verdicts.iter().filter(|v| !v.passed).count();
    let _ = match failed {
        0 => writeln!(text, "\n{}", style.good("within all limits")),
        n => writeln!(text, "\n{}", style.bad(&format!("{} failed", counted(n as u64, "check")))),
    };
    text
}

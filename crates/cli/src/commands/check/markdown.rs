//! The checks as a Markdown table.

use std::fmt::Write as _;

use super::gates::{Outcome, Verdict};
use crate::several::Unreadable;
use crate::text::{counted, printable};

pub(super) fn render(verdicts: &[Verdict], unreadable: &[Unreadable]) -> String {
    let ended = |outcome| verdicts.iter().filter(|v| v.outcome == outcome).count();
    let (failed, unchecked) = (ended(Outcome::Failed), ended(Outcome::Unchecked));
    let all = counted(verdicts.len() as u64, "check");
    let sum = match (failed, unchecked, unreadable.len()) {
        (0, 0, 0) => format!("✅ {all} passed"),
        (n, 0, 0) => format!("❌ {n} of {all} failed"),
        (0, n, 0) => format!("❌ {n} of {all} could not be made"),
        (failed, unchecked, files) => format!(
            "❌ {failed} of {all} failed, {unchecked} could not be made, {} could not be read",
            counted(files as u64, "file")
        ),
    };
    let mut text = format!(
        "### GPU memory: {sum}\n\n| | file | device | check | measured | limit | |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for v in verdicts {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            match v.outcome {
                Outcome::Passed => "✅",
                Outcome::Failed => "❌",
                Outcome::Unchecked => "❓",
            },
            cell(&v.file),
            v.device,
            v.check,
            cell(&v.value),
            cell(&v.limit),
            cell(v.reason.as_deref().unwrap_or(""))
        );
    }
    for one in unreadable {
        let _ = writeln!(text, "| ❓ | {} | | read | | | {} |", cell(&one.file), cell(&one.reason));
    }
    text.push('\n');
    text
}

/// A text that cannot leave its cell or become markup.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_text_stays_in_its_cell() {
        assert_eq!(cell("a|b\n<img>[x](y)"), "a\\|b\\\\n&lt;img&gt;\\[x\\](y)");
        assert_eq!(cell("rank0.pickle"), "rank0.pickle");
    }
}

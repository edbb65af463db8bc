//! The checks as a Markdown table.

use std::fmt::Write as _;

use super::gates::Verdict;
use crate::text::{counted, printable};

pub(super) fn render(verdicts: &[Verdict]) -> String {
    let failed = verdicts.iter().filter(|v| !v.passed).count();
    let sum = match failed {
        0 => format!("✅ {} passed", counted(verdicts.len() as u64, "check")),
        n => format!("❌ {n} of {} failed", counted(verdicts.len() as u64, "check")),
    };
    let mut text = format!(
        "### GPU memory: {sum}\n\n| | file | device | check | measured | limit | |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for v in verdicts {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            if v.passed { "✅" } else { "❌" },
            cell(&v.file),
            v.device,
            v.check,
            cell(&v.value),
            cell(&v.limit),
            cell(v.reason.as_deref().unwrap_or(""))
        );
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

//! The checks as JUnit XML, which build servers show as tests: a suite for each file.

use std::fmt::Write as _;

use super::gates::{Outcome, Verdict};
use crate::several::Unreadable;

pub(super) fn render(verdicts: &[Verdict], unreadable: &[Unreadable]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let count = |of: &[&Verdict], unreadable: usize| {
        let ended = |outcome| of.iter().filter(|v| v.outcome == outcome).count();
        let (failures, errors) = (ended(Outcome::Failed), ended(Outcome::Unchecked) + unreadable);
        format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"", of.len() + unreadable)
    };
    let all: Vec<&Verdict> = verdicts.iter().collect();
    let counts = count(&all, unreadable.len());
    let _ = writeln!(text, "<testsuites name=\"vramwise check\" {counts}>");
    for suite in all.chunk_by(|a, b| a.file == b.file) {
        let file = escaped(&suite[0].file);
        let _ = writeln!(text, "  <testsuite name=\"{file}\" {}>", count(suite, 0));
        for verdict in suite {
            let name = format!("{} of device {}", verdict.check, verdict.device);
            let _ = write!(text, "    <testcase classname=\"{file}\" name=\"{name}\"");
            let summary = format!("{} (limit {})", verdict.value, verdict.limit);
            let reason = verdict.reason.as_deref().unwrap_or("");
            if verdict.passed() {
                let line = if reason.is_empty() { summary } else { format!("{summary}; {reason}") };
                let line = escaped(&line);
                let _ = writeln!(text, ">\n      <system-out>{line}</system-out>\n    </testcase>");
            } else {
                let tag = if verdict.outcome == Outcome::Failed { "failure" } else { "error" };
                let (message, reason) = (escaped(&summary), escaped(reason));
                let _ = writeln!(
                    text,
                    ">\n      <{tag} message=\"{message}\">{reason}</{tag}>\n    </testcase>"
                );
            }
        }
        text.push_str("  </testsuite>\n");
    }
    for one in unreadable {
        let (file, reason) = (escaped(&one.file), escaped(&one.reason));
        let _ = writeln!(
            text,
            "  <testsuite name=\"{file}\" {}>\n    <testcase classname=\"{file}\" name=\"read\">\n      \
             <error message=\"cannot be used\">{reason}</error>\n    </testcase>\n  </testsuite>",
            count(&[], 1)
        );
    }
    text.push_str("</testsuites>\n");
    text
}

/// `text` as XML has it; characters that XML 1.0 cannot have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\r' | '\t' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_of_files_cannot_break_the_document() {
        assert_eq!(escaped("a<b>&\"c\"\u{1b}\n"), "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}&#10;");
    }
}

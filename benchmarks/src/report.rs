//! The table that is printed: one line a figure, with its budget.

use std::io::Write as _;

/// Prints one line to standard error: progress and errors.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints one line to standard output: results.
fn print(line: &str) {
    // A reader that has gone away has seen enough.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// What a figure must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
    /// For information.
    None,
}

/// The figures so far.
pub(crate) struct Report {
    only: String,
    lines: usize,
    failed: usize,
}

impl Report {
    /// An empty report of the measurements whose name begins with `only`.
    pub(crate) fn new(only: &str) -> Self {
        Self { only: only.to_owned(), lines: 0, failed: 0 }
    }

    /// Whether a measurement is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.starts_with(&self.only) || self.only.starts_with(name)
    }

    /// Enters one figure: `load.plain.speed`, 25.3, "times CPython's pickle.load".
    pub(crate) fn figure(&mut self, name: &str, value: f64, unit: &str, budget: Budget) {
        if self.lines == 0 {
            print(&format!(
                "{:<34} {:>12}  {:<34} {:<14} result",
                "figure", "value", "unit", "budget"
            ));
        }
        self.lines += 1;
        let (wanted, held) = match budget {
            Budget::AtLeast(least) => (format!("≥ {}", number(least)), Some(value >= least)),
            Budget::AtMost(most) => (format!("≤ {}", number(most)), Some(value <= most)),
            Budget::None => ("-".to_owned(), None),
        };
        let verdict = match held {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "",
        };
        self.failed += usize::from(held == Some(false));
        let line = format!("{name:<34} {:>12}  {unit:<34} {wanted:<14} {verdict}", number(value));
        print(line.trim_end());
    }

    /// Prints the last line; `false` if a budget is exceeded.
    pub(crate) fn finish(self) -> bool {
        match self.failed {
            0 => print(&format!("bench: {} figures, every budget held", self.lines)),
            failed => print(&format!("bench: {} figures, {failed} budgets exceeded", self.lines)),
        }
        self.failed == 0
    }
}

/// A number with as many decimals as its size deserves.
fn number(value: f64) -> String {
    match value.abs() {
        n if n >= 1000.0 => {
            let whole = format!("{value:.0}");
            let mut grouped = String::new();
            for (i, digit) in whole.chars().enumerate() {
                if i > 0 && (whole.len() - i).is_multiple_of(3) && digit.is_ascii_digit() {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        n if n >= 100.0 => format!("{value:.0}"),
        n if n >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!(number(12_345_678.4), "12,345,678");
        assert_eq!(number(105.04), "105");
        assert_eq!(number(10.56), "10.6");
        assert_eq!(number(1.234), "1.23");
    }

    #[test]
    fn an_exceeded_budget_fails_the_report() {
        let mut report = Report::new("load");
        assert!(report.wants("load.plain") && report.wants("load") && !report.wants("tune"));
        report.figure("load.a", 2.0, "times", Budget::AtMost(2.0));
        report.figure("load.b", 2.0, "times", Budget::None);
        assert_eq!(report.failed, 0);
        report.figure("load.c", 2.0, "times", Budget::AtLeast(2.1));
        assert!(!report.finish());
    }
}

//! Text from files, made safe to show.

use std::borrow::Cow;

/// `text` with every control character written as an escape.
///
/// Names in a snapshot come from whoever made it; shown as they are, they could move the cursor,
/// recolour the terminal or (with bidirectional marks) show a path that isn't there.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A whole number with a comma between each three digits: `1,649`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 event`, `2 events`: the number grouped, the noun with an `s` unless there is one of it.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(printable("train.py"), "train.py");
        assert_eq!(printable("größe, 漢字"), "größe, 漢字");
        assert_eq!(printable("a\u{1b}[31mb\nc"), "a\\u{1b}[31mb\\nc");
        assert_eq!(printable("\u{202e}yp.evil"), "\\u{202e}yp.evil");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(18_446_744_073_709_551_615), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(50_854, "event"), "50,854 events");
    }
}

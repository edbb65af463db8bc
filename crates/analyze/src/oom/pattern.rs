//! A small pattern language for compact text: literals with holes for sizes and whole numbers.
//!
//! A pattern is written as the text looks without white space and in lower case; `{s}` stands for a
//! size, `{i}` for a whole number. Unlike a regular expression it tells "the text ends before the
//! pattern does" from "no match", which is what putting wrapped lines together needs.

use super::amount::{self, Amount, Read};

/// One filled hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Size(Amount),
    /// A size of 2^63 bytes or more.
    Impossible,
    Int(u64),
}

/// What a pattern found at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of it: the values and the length used.
    Full(Vec<Value>, usize),
    /// The text ends inside it.
    Partial,
    /// Something else stands there.
    No,
}

/// Matches `pattern` at the beginning of `text`.
pub(super) fn match_at(pattern: &str, text: &[u8]) -> Outcome {
    let mut values = Vec::new();
    let mut at = 0;
    let mut rest = pattern;
    while !rest.is_empty() {
        let here = &text[at..];
        if let Some(behind) = rest.strip_prefix("{s}") {
            let (value, used) = match amount::read(here) {
                Read::Size(amount, used) => (Value::Size(amount), used),
                Read::Impossible(used) => (Value::Impossible, used),
                Read::Partial => return Outcome::Partial,
                Read::No => return if here.is_empty() { Outcome::Partial } else { Outcome::No },
            };
            values.push(value);
            at += used;
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("{i}") {
            let Some((value, used)) = amount::integer(here) else {
                return if here.is_empty() { Outcome::Partial } else { Outcome::No };
            };
            if used == here.len() && !behind.is_empty() {
                return Outcome::Partial;
            }
            values.push(value.map_or(Value::Impossible, Value::Int));
            at += used;
            rest = behind;
        } else {
            let end = rest.find('{').unwrap_or(rest.len());
            let literal = &rest.as_bytes()[..end];
            if here.starts_with(literal) {
                at += end;
                rest = &rest[end..];
            } else if literal.starts_with(here) {
                return Outcome::Partial;
            } else {
                return Outcome::No;
            }
        }
    }
    Outcome::Full(values, at)
}

/// Position of `needle` in `haystack` at or behind `from`.
pub(super) fn find(haystack: &[u8], needle: &str, from: usize) -> Option<usize> {
    let needle = needle.as_bytes();
    let first = *needle.first()?;
    let mut at = from;
    while at + needle.len() <= haystack.len() {
        let room = &haystack[at..=haystack.len() - needle.len()];
        at += room.iter().position(|b| *b == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_the_rest_is_literal() {
        let found = match_at("gpu{i}hasatotalcapacityof{s}", b"gpu3hasatotalcapacityof4.00gibof");
        let Outcome::Full(values, used) = found else { panic!("{found:?}") };
        assert_eq!(values[0], Value::Int(3));
        assert!(matches!(values[1], Value::Size(a) if a.bytes == 4 << 30));
        assert_eq!(used, 30);
    }

    #[test]
    fn a_text_that_ends_early_is_told_from_another_text() {
        let pattern = "gpu{i}has{s}";
        for cut in ["", "g", "gpu", "gpu1", "gpu1has", "gpu1has2.0", "gpu1has2.00g"] {
            assert_eq!(match_at(pattern, cut.as_bytes()), Outcome::Partial, "{cut}");
        }
        for other in ["x", "gpux", "gpu1had", "gpu1hasnone"] {
            assert_eq!(match_at(pattern, other.as_bytes()), Outcome::No, "{other}");
        }
    }

    #[test]
    fn find_is_a_plain_search() {
        assert_eq!(find(b"aabab", "ab", 0), Some(1));
        assert_eq!(find(b"aabab", "ab", 2), Some(3));
        assert_eq!(find(b"aabab", "ab", 4), None);
        assert_eq!(find(b"a", "ab", 0), None);
    }
}

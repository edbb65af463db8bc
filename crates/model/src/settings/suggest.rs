//! What was probably meant by a string that is refused.
//!
//! The string is read a second time with a lenient eye (quotes, shell syntax, `=` for `:`, `;` or a
//! space for `,`, units, misspelt names), every change is noted in words, and the result is
//! proposed only if the strict parser of the same release takes it.

use vramwise_types::TorchVersion;

use super::error::Problem;
use super::keys::{self, KEYS, Key};
use super::parse::{Fault, parse_raw};
use super::rewrite::value;
use super::variable::VARIABLES;

/// Hints in words and, where possible, the corrected string.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Advice {
    pub(super) hints: Vec<String>,
    pub(super) suggestion: Option<String>,
}

/// Strings longer than this get no advice: nobody meant them.
const LONGEST: usize = 4096;

/// Advice for a refused string.
pub(super) fn advise(text: &str, version: TorchVersion, fault: &Fault) -> Advice {
    let mut hints = Vec::new();
    if text.len() > LONGEST {
        return Advice {
            hints: vec!["a settings string is a short line; this is something else".to_owned()],
            suggestion: None,
        };
    }
    if looks_like_a_path(text) {
        hints.push(
            "this looks like a path: the value of another variable got into this one".to_owned(),
        );
        return Advice { hints, suggestion: None };
    }
    let bare = unwrap(text, &mut hints);
    if text.contains("hipMallocAsync") {
        hints.push("hipMallocAsync exists only in builds for ROCm".to_owned());
    }
    let pairs = split(&bare, &mut hints);
    let mut out: Vec<String> = Vec::new();
    for (name, raw) in pairs {
        let Some(key) = closest(&name, version, &mut hints) else { continue };
        if let Some(value) = value(key, raw.as_deref(), version, &mut hints) {
            out.push(format!("{}:{value}", key.name));
        }
    }
    raise_minima(&mut out, version);
    hints.dedup();
    let suggestion = out.join(",");
    let recognised = !out.is_empty() || drops_everything_on_purpose(fault, text);
    let usable = recognised && suggestion != text && parse_raw(None, &suggestion, version).is_ok();
    Advice { hints, suggestion: usable.then_some(suggestion) }
}

/// Whether an empty string is the right correction: one option, known, whose value says "off".
fn drops_everything_on_purpose(fault: &Fault, text: &str) -> bool {
    fault.option.is_some()
        && !text.contains(',')
        && matches!(
            fault.problem,
            Problem::OutsideInterval { .. } | Problem::NotAPowerOfTwo { value: 0, .. }
        )
}

/// `C:\…`, `"C:\…"`, `/usr/lib:…`.
fn looks_like_a_path(text: &str) -> bool {
    let bare = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    let bytes = bare.as_bytes();
    let drive = bytes.len() >= 2
        && bytes[0].is_ascii_alphabetic()
        && matches!(&bytes[1..], [b':', b'\\' | b'/', ..]);
    drive || bare.starts_with('/') || bare.contains(":\\")
}

/// Takes off what belongs to the shell: quotes, `export`, `set`, `$env:`, the variable's own name.
fn unwrap(text: &str, hints: &mut Vec<String>) -> String {
    let mut bare = text.trim();
    let mut quoted = false;
    loop {
        let before = bare;
        bare = bare.trim().trim_start_matches('(').trim_end_matches(['\\', '`']).trim_end();
        for word in ["export ", "set ", "setenv ", "env ", "$env:", "os.environ[", "ENV "] {
            bare = bare.strip_prefix(word).unwrap_or(bare).trim_start();
        }
        let trimmed = bare.trim_matches(['"', '\'', '“', '”', '‘', '’']);
        quoted |= trimmed.len() != bare.len();
        bare = trimmed;
        for variable in VARIABLES {
            if let Some(rest) = bare.strip_prefix(variable) {
                let rest = rest.trim_start_matches(['"', '\'', ']', ' ']);
                bare = rest.strip_prefix(['=', ':', ' ']).unwrap_or(rest);
                hints.push(format!("the variable's name {variable} is not part of its value"));
            }
        }
        if bare == before {
            break;
        }
    }
    if quoted {
        hints.push("the quotes are part of the value; in Windows' cmd and in env files they are not taken off".to_owned());
    }
    // What follows a quote that closes early, or `;` and another command, is not the value.
    let cut = bare.find(['"', '\'']).unwrap_or(bare.len());
    bare[..cut].trim().to_owned()
}

/// Cuts at commas, semicolons and white space outside brackets, then each piece at the first `:` or
/// `=`.
fn split(bare: &str, hints: &mut Vec<String>) -> Vec<(String, Option<String>)> {
    let mut pieces: Vec<String> = vec![String::new()];
    let mut depth = 0_i32;
    let chars: Vec<char> = bare.chars().collect();
    for (i, ch) in chars.iter().enumerate() {
        match ch {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth = (depth - 1).max(0),
            _ => {}
        }
        let ends_here = match ch {
            ',' => depth == 0 || names_an_option(&chars[i + 1..]),
            ';' | '&' | '|' | '\n' => true,
            ' ' | '\t' => depth == 0 && names_an_option(&chars[i + 1..]),
            _ => false,
        };
        if !ends_here {
            if let Some(piece) = pieces.last_mut() {
                piece.push(*ch);
            }
            continue;
        }
        depth = 0;
        if matches!(ch, ';' | '&' | '|') {
            hints.push(format!("options are separated by ',', not by '{ch}'"));
        } else if ch.is_whitespace() && pieces.last().is_some_and(|p| !p.is_empty()) {
            hints.push("a space does not separate options, it vanishes; write ','".to_owned());
        }
        pieces.push(String::new());
    }
    if pieces.len() > 1 && pieces.iter().any(|p| p.trim().is_empty()) && bare.contains(',') {
        hints.push(
            "there is an empty entry: two commas in a row, or one at the beginning".to_owned(),
        );
    }
    pieces.iter().filter(|p| !p.trim().is_empty()).map(|p| pair(p.trim(), hints)).collect()
}

fn pair(piece: &str, hints: &mut Vec<String>) -> (String, Option<String>) {
    let Some(at) = piece.find([':', '=']) else {
        return (piece.to_owned(), None);
    };
    let (name, rest) = piece.split_at(at);
    if rest.starts_with('=') {
        hints.push("name and value are separated by ':', not by '='".to_owned());
    }
    let value = rest.trim_start_matches([':', '=']).trim();
    (name.trim().to_owned(), (!value.is_empty()).then(|| value.to_owned()))
}

/// Whether the characters begin with the name of an option and a separator.
fn names_an_option(rest: &[char]) -> bool {
    let name: String = rest
        .iter()
        .skip_while(|c| c.is_whitespace() || **c == ',')
        .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
        .collect();
    name.len() > 4 && nearest(&normal(&name)).is_some()
}

fn normal(name: &str) -> String {
    name.trim()
        .to_ascii_lowercase()
        .replace('-', "_")
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect()
}

/// The option that a name stands for, if the release knows it; otherwise a hint.
fn closest(name: &str, version: TorchVersion, hints: &mut Vec<String>) -> Option<&'static Key> {
    let Some(key) = nearest(&normal(name)) else {
        hints.push(format!("'{}' is no allocator option; it is left out", short(name)));
        return None;
    };
    if !key.known_in(version) {
        hints.push(format!(
            "{} came with PyTorch {}; it is left out for {version}",
            key.name,
            key.since()
        ));
        return None;
    }
    if key.name != name {
        hints.push(format!("'{}' is probably {}", short(name), key.name));
    }
    Some(key)
}

fn short(name: &str) -> String {
    name.chars().take(60).collect()
}

/// The option with that name, with it as an unambiguous beginning or without its unit, or a few
/// letters away.
fn nearest(name: &str) -> Option<&'static Key> {
    if let Some(key) = keys::named(name) {
        return Some(key);
    }
    let plain = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    if let Some(key) = keys::named(&format!("{plain}_mb")) {
        return Some(key);
    }
    if plain.len() >= 8 {
        let mut starts = KEYS.iter().filter(|k| k.name.starts_with(plain));
        if let (Some(key), None) = (starts.next(), starts.next()) {
            return Some(key);
        }
    }
    let allowed = (plain.chars().count() / 4).min(6);
    KEYS.iter()
        .map(|k| (distance(plain, k.name), k))
        .filter(|(d, _)| *d <= allowed)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Number of letters to insert, delete, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(80).collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut cost = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before_last[j - 2] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// A larger large segment raises the minima of the two options that are compared with it.
fn raise_minima(out: &mut [String], version: TorchVersion) {
    let read =
        |e: &String, name: &str| e.strip_prefix(name)?.strip_prefix(':')?.parse::<u64>().ok();
    let large = out.iter().find_map(|e| read(e, "large_segment_size_mb")).unwrap_or(20);
    for entry in out.iter_mut() {
        for name in ["max_split_size_mb", "max_non_split_rounding_mb"] {
            if version.at_least_2(11) && read(entry, name).is_some_and(|v| v < large) {
                *entry = format!("{name}:{large}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_mistakes() {
        assert_eq!(distance("expandable", "expandable"), 0);
        assert_eq!(distance("expandeable", "expandable"), 1);
        assert_eq!(distance("epxandable", "expandable"), 1);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let name = |n: &str| nearest(&normal(n)).map(|k| k.name);
        assert_eq!(name("expandeable_segments"), Some("expandable_segments"));
        assert_eq!(name("Expandable-Segments"), Some("expandable_segments"));
        assert_eq!(name("max_split_size"), Some("max_split_size_mb"));
        assert_eq!(name("max_split_size_m>"), Some("max_split_size_mb"));
        assert_eq!(name("garbage_collection_treshold"), Some("garbage_collection_threshold"));
        assert_eq!(name("cudart"), None);
        assert_eq!(name("C"), None);
        assert_eq!(name(""), None);
    }
}

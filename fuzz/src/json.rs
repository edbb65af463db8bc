//! Mutations of JSON: token by token.

use vramwise_testkit::Rng;

/// Tokens that a stranger might put in.
const PIECES: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    "1.5",
    "18446744073709551616",
    "-9223372036854775809",
    "\"\"",
    "\"free\"",
    "\"\\ud800\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "{\"a\":",
    "}",
    "]",
    ",",
    ":",
    "\"frames\":",
    "\"blocks\":[],",
    "NaN",
    "\u{feff}",
    "\u{0}",
];

/// A file of the corpus with a few mutations.
pub(crate) fn mutate(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut text = rng.pick(corpus).clone();
    for _ in 0..rng.range(0..4) {
        let starts = tokens(&text);
        if starts.is_empty() {
            return text;
        }
        let first = rng.index(starts.len());
        let at = starts[first];
        let run = if rng.one_in(3) { rng.octaves(1, 64) } else { 1 } as usize;
        let end = starts.get(first + run).copied().unwrap_or(text.len());
        match rng.below(6) {
            0 => drop(text.drain(at..end)),
            1 => {
                let copy = text[at..end].to_vec();
                drop(text.splice(at..at, copy));
            }
            2 => drop(text.splice(at..at, rng.pick(PIECES).bytes())),
            3 => drop(text.splice(at..end, rng.pick(PIECES).bytes())),
            4 => text.truncate(at),
            _ => text[at] = rng.bits() as u8,
        }
    }
    text
}

/// Where tokens begin: words and numbers together, everything else byte by byte.
fn tokens(text: &[u8]) -> Vec<usize> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let mut starts = Vec::new();
    for (i, b) in text.iter().enumerate() {
        let inside = i > 0 && is_word(*b) && is_word(text[i - 1]);
        if !inside && !b.is_ascii_whitespace() {
            starts.push(i);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_and_numbers_stay_together() {
        assert_eq!(super::tokens(b"{\"a_b\": -12}"), [0, 1, 2, 5, 6, 8, 11]);
    }
}

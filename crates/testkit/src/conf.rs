//! Random settings strings, as a user might put into `PYTORCH_CUDA_ALLOC_CONF`.

use crate::Rng;

/// A string that PyTorch 2.11 accepts: any subset of the options that change a placement.
pub fn valid(rng: &mut Rng) -> String {
    let mut parts = Vec::new();
    if rng.one_in(3) {
        parts.push("expandable_segments:True".to_owned());
    }
    if rng.one_in(3) {
        parts.push(format!("max_split_size_mb:{}", rng.octaves(20, 2048)));
    }
    if rng.one_in(4) {
        parts.push(format!("max_non_split_rounding_mb:{}", rng.octaves(20, 512)));
    }
    if rng.one_in(3) {
        parts.push(format!("roundup_power2_divisions:{}", divisions(rng)));
    }
    if rng.one_in(3) {
        parts.push(format!("garbage_collection_threshold:0.{}", rng.range(10..100)));
    }
    if rng.one_in(6) {
        // Minima of the two sizes above follow it, so it stays at or below the default.
        parts.push(format!("large_segment_size_mb:{}", rng.range(11..21)));
    }
    if parts.len() > 1 && rng.one_in(2) {
        let (i, j) = (rng.index(parts.len()), rng.index(parts.len()));
        parts.swap(i, j);
    }
    parts.join(if rng.one_in(8) { " , " } else { "," })
}

/// The value of `roundup_power2_divisions`: one number, or a list of intervals.
fn divisions(rng: &mut Rng) -> String {
    let value = |rng: &mut Rng| 1u64 << rng.below(5);
    if rng.one_in(2) {
        return value(rng).to_string();
    }
    let mut intervals: Vec<u64> = (0..rng.range(1..5)).map(|_| 1 << rng.below(16)).collect();
    intervals.sort_unstable();
    intervals.dedup();
    let mut parts: Vec<String> =
        intervals.into_iter().map(|i| format!("{i}:{}", value(rng))).collect();
    if rng.one_in(2) {
        parts.push(format!(">:{}", value(rng)));
    }
    format!("[{}]", parts.join(","))
}

/// Pieces that settings strings are made of, the wrong ones included.
const PIECES: &[&str] = &[
    "max_split_size_mb",
    "expandable_segments",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "backend",
    "native",
    "cudaMallocAsync",
    "True",
    "true",
    "False",
    ":",
    ",",
    "[",
    "]",
    ">",
    "=",
    ";",
    " ",
    "\t",
    "-1",
    "0",
    "0.8",
    "1.0",
    "20",
    "64",
    "512MB",
    "1e9",
    "18446744073709551616",
    "max_split_size",
    "pinned_num_register_threads",
    "é",
    "\u{0}",
    "NaN",
];

/// A string that may be anything: a valid one with pieces put in, taken out or doubled.
pub fn any(rng: &mut Rng) -> String {
    let mut chars: Vec<char> = valid(rng).chars().collect();
    for _ in 0..rng.below(5) {
        let at = rng.index(chars.len() + 1);
        match rng.below(3) {
            0 if at < chars.len() => {
                let end = (at + rng.range(1..8) as usize).min(chars.len());
                chars.drain(at..end);
            }
            1 if at < chars.len() => {
                let end = (at + rng.range(1..30) as usize).min(chars.len());
                let copy: Vec<char> = chars[at..end].to_vec();
                chars.splice(at..at, copy);
            }
            _ => {
                chars.splice(at..at, rng.pick(PIECES).chars());
            }
        }
    }
    chars.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramwise_model::settings::{Config, parse};
    use vramwise_types::TorchVersion;

    #[test]
    fn valid_strings_are_accepted_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..2000 {
            let text = valid(&mut Rng::of(7, index));
            let parsed = parse(&text, TorchVersion::REFERENCE);
            assert!(parsed.is_ok(), "{text}: {parsed:?}");
            seen.insert(text);
        }
        assert!(seen.len() > 1000, "{} different strings", seen.len());
        assert!(seen.contains(""), "the default occurs");
    }

    #[test]
    fn any_string_is_refused_often_but_not_always() {
        let accepted = (0..2000)
            .filter(|i| parse(&any(&mut Rng::of(8, *i)), TorchVersion::REFERENCE).is_ok())
            .count();
        assert!((400..1800).contains(&accepted), "{accepted} of 2000 accepted");
        assert_eq!(
            parse("", TorchVersion::REFERENCE).map(|p| p.config).ok(),
            Some(Config::default())
        );
    }
}

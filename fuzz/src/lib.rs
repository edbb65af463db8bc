//! Mutated input for every parser: what may arrive from a stranger must neither panic, nor hang, nor
//! take memory without bound.
//!
//! A [`Target`] is a parser with the properties that its answer must have. [`input`] makes the
//! `index`-th input of a seed, so that a failure is had again from two numbers. The program
//! `vramwise-fuzz` (`cargo xtask fuzz`) feeds a bounded number of them on stable Rust;
//! `fuzz/libfuzzer` gives the same targets to cargo-fuzz, which needs nightly.

#![forbid(unsafe_code)]

mod corpus;
mod json;
mod logs;
mod mutate;
mod opcodes;
pub mod targets;

pub use corpus::Corpus;
pub use targets::Target;

use vramwise_testkit::Rng;

/// Longest input that is made; parsers are linear, so longer ones only take longer.
const LONGEST: usize = 64 << 10;

/// The `index`-th input of a seed for a target.
pub fn input(target: Target, corpus: &Corpus, seed: u64, index: u64) -> Vec<u8> {
    let mut rng = Rng::of(seed, index);
    let mut bytes = match target {
        Target::Settings => vramwise_testkit::conf::any(&mut rng).into_bytes(),
        Target::Logs => logs::mutate(&mut rng, &corpus.logs),
        Target::Model => rng.bits().to_le_bytes().to_vec(),
        Target::Replay if rng.one_in(4) => json::mutate(&mut rng, &corpus.jsons),
        Target::Pickle | Target::Replay => mutate::pickle(&mut rng, &corpus.pickles),
        Target::Trace if rng.one_in(3) => json::mutate(&mut rng, &corpus.jsons),
        Target::Trace if rng.one_in(8) => mutate::bytes(&mut rng, &corpus.compressed),
        Target::Trace => mutate::pickle(&mut rng, &corpus.pickles),
    };
    bytes.truncate(LONGEST);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_repeat_exactly_and_differ_from_each_other() {
        let corpus = Corpus::generated();
        for target in Target::ALL {
            let made: Vec<_> = (0..200).map(|i| input(target, &corpus, 9, i)).collect();
            let again: Vec<_> = (0..200).map(|i| input(target, &corpus, 9, i)).collect();
            assert_eq!(made, again);
            let distinct: std::collections::BTreeSet<_> = made.iter().collect();
            assert!(distinct.len() > 120, "{target}: {}", distinct.len());
        }
    }

    #[test]
    fn a_few_hundred_inputs_pass() {
        let corpus = Corpus::generated();
        for target in Target::ALL {
            for index in 0..if target.is_slow() { 20 } else { 300 } {
                target.run(&input(target, &corpus, 10, index));
            }
        }
    }

    #[test]
    fn mutated_pickles_are_neither_all_good_nor_all_bad() {
        let corpus = Corpus::generated();
        let good =
            (0..400).filter(|i| targets::reads(&input(Target::Trace, &corpus, 11, *i))).count();
        assert!((20..380).contains(&good), "{good} of 400 are read");
    }
}

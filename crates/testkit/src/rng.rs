//! A small seeded generator of random numbers, the same on every platform and in every release.

use std::ops::Range;

/// SplitMix64: one multiplication-heavy step a number, any seed is a good seed.
///
/// Not for secrets. The sequence of a seed never changes, since seeds stand in tests and reports.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator for the `index`-th of many independent things of one seed.
    pub fn of(seed: u64, index: u64) -> Self {
        let mut outer = Self::new(seed);
        let mixed = outer.bits() ^ index.wrapping_mul(0xd134_2543_de82_ef95);
        Self::new(mixed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The high half of a product is uniform enough here: the bias is below end / 2^64.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number in `range`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// An index into something of `len` items.
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// `true` once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// A number between `low` and `high` whose logarithm is uniform: as many in each octave.
    ///
    /// # Panics
    /// If `low` is 0 or above `high`.
    pub fn octaves(&mut self, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high, "an interval of positive numbers");
        let first = low.ilog2();
        let octave = first + self.below(u64::from(high.ilog2() - first) + 1) as u32;
        let start = 1u64 << octave;
        let number = start + self.below(start);
        number.clamp(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..1000 {
            seen[rng.range(3..10) as usize - 3] += 1;
            assert!((1000..=5000).contains(&rng.octaves(1000, 5000)));
        }
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
    }
}

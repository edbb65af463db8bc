//! The sizes that occur in the programs: where thresholds can make a difference.

use std::collections::BTreeMap;

use vramwise_model::settings::Config;
use vramwise_model::size;
use vramwise_replay::Op;

use crate::case::Case;

/// Distinct rounded sizes of large requests with the bytes asked in each, ascending by size.
pub(crate) fn large_sizes(cases: &[Case]) -> Vec<(u64, u64)> {
    let plain = Config::default();
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for op in cases.iter().flat_map(|c| &c.program.ops) {
        let (Op::Malloc { size, .. } | Op::Failed { size, .. }) = op else { continue };
        let rounded = size::round_size(&plain, *size);
        if !size::is_small(rounded) {
            *sizes.entry(rounded).or_default() += rounded;
        }
    }
    sizes.into_iter().collect()
}

/// Values in MiB, at least `least`, that separate the sizes which matter most: each lies just above one
/// of the `count` sizes with most bytes.
pub(crate) fn thresholds(sizes: &[(u64, u64)], least: u64, count: usize) -> Vec<u64> {
    let mut by_bytes: Vec<_> = sizes.to_vec();
    by_bytes.sort_by_key(|(size, bytes)| (std::cmp::Reverse(*bytes), *size));
    let above = |(size, _): &(u64, u64)| (size >> 20) + 1;
    let mut values: Vec<u64> =
        by_bytes.iter().map(above).filter(|mib| *mib >= least).take(count).collect();
    values.sort_unstable();
    values.dedup();
    values
}

//! The settings that a search begins with: each option's grid, refined around the sizes that occur, and
//! combinations.

use vramwise_model::settings::{Config, ROUNDUP_BUCKETS};
use vramwise_types::TorchVersion;

use crate::evaluate::Setting;
use crate::sizes;

const MIB: u64 = 1 << 20;
/// Usual thresholds in MiB.
const SPLIT: [u64; 10] = [21, 32, 48, 64, 96, 128, 256, 512, 1024, 2048];
const DIVISIONS: [u64; 5] = [2, 4, 8, 16, 32];
const LARGE_SEGMENT: [u64; 6] = [12, 16, 32, 48, 64, 128];
const GARBAGE: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// What the grid depends on.
pub(crate) struct Terrain<'a> {
    pub(crate) version: TorchVersion,
    pub(crate) sizes: &'a [(u64, u64)],
    /// Garbage collection needs a limit.
    pub(crate) limited: bool,
    pub(crate) baseline: &'a Config,
}

/// The settings in the order in which they are tried; the first is PyTorch's default, the second the
/// recorded one.
pub(crate) fn settings(terrain: &Terrain<'_>) -> Vec<Setting> {
    let mut configs = vec![Config::default(), terrain.baseline.clone()];
    let splits = split_values(terrain);
    let alone = |configs: &mut Vec<Config>, base: &Config| {
        configs.extend(splits.iter().map(|mib| with_split(base, *mib)));
        configs.extend(DIVISIONS.iter().map(|d| with_divisions(base, *d)));
        if terrain.version.at_least_2(11) {
            configs.extend(LARGE_SEGMENT.iter().map(|mib| with_large_segment(base, *mib)));
        }
    };
    let expandable = Config { expandable_segments: true, ..Config::default() };
    if terrain.version.at_least_2(1) {
        configs.push(expandable.clone());
    }
    alone(&mut configs, &Config::default());
    if terrain.version.at_least_2(1) {
        configs.extend(DIVISIONS.iter().map(|d| with_divisions(&expandable, *d)));
        if terrain.version.at_least_2(11) {
            configs.extend(LARGE_SEGMENT.iter().map(|mib| with_large_segment(&expandable, *mib)));
        }
    }
    for mib in splits.iter().copied().filter(|mib| *mib <= 512) {
        if terrain.version.at_least_2(7) {
            for rounding in [2 * mib, 4 * mib] {
                let split = with_split(&Config::default(), mib);
                configs.push(Config { max_non_split_rounding: rounding * MIB, ..split });
            }
        }
        configs.push(with_divisions(&with_split(&Config::default(), mib), 8));
    }
    for from in [4, 6, 8] {
        configs.extend([4, 8].map(|d| with_divisions_from(&Config::default(), from, d)));
    }
    if terrain.limited {
        for threshold in GARBAGE {
            let with =
                |base: &Config| Config { garbage_collection_threshold: threshold, ..base.clone() };
            configs.push(with(&Config::default()));
            configs.push(with(&with_split(&Config::default(), 128)));
            configs.push(with(terrain.baseline));
        }
    }
    distinct(configs, terrain.version, 2)
}

fn split_values(terrain: &Terrain<'_>) -> Vec<u64> {
    let largest = terrain.sizes.last().map_or(0, |(size, _)| size >> 20);
    let mut values: Vec<u64> = SPLIT.into_iter().filter(|mib| *mib <= largest + 1).collect();
    values.extend(sizes::thresholds(terrain.sizes, 21, 10));
    values.sort_unstable();
    values.dedup();
    values
}

/// Neighbours of a setting: one option changed a little.
pub(crate) fn neighbours(config: &Config, terrain: &Terrain<'_>) -> Vec<Setting> {
    let mut near = Vec::new();
    if config.max_split_size == u64::MAX {
        near.extend(sizes::thresholds(terrain.sizes, 21, 4).iter().map(|m| with_split(config, *m)));
    } else {
        let mib = config.max_split_size / MIB;
        for value in [mib * 3 / 4, mib - 2, mib + 2, mib * 5 / 4, mib * 2] {
            near.push(with_split(config, value.max(21)));
        }
        near.extend(adjoining(terrain.sizes, config.max_split_size).map(|m| with_split(config, m)));
        if terrain.version.at_least_2(7) {
            for rounding in [32, 64, 128, 256, 512, 1024] {
                near.push(Config { max_non_split_rounding: rounding * MIB, ..config.clone() });
            }
        }
        near.push(Config {
            max_split_size: u64::MAX,
            max_non_split_rounding: config.large_segment_size,
            ..config.clone()
        });
    }
    for divisions in [1, 2, 4, 8, 16, 32, 64] {
        near.push(with_divisions(config, divisions));
    }
    for from in [2, 3, 5, 7] {
        near.extend([4, 8, 16].map(|d| with_divisions_from(config, from, d)));
    }
    if terrain.version.at_least_2(11) {
        for mib in [11, 12, 14, 16, 20, 24, 32, 40, 64, 96] {
            near.push(with_large_segment(config, mib));
        }
    }
    if terrain.version.at_least_2(1) {
        near.push(Config { expandable_segments: !config.expandable_segments, ..config.clone() });
    }
    distinct(near, terrain.version, 0)
}

/// Thresholds in MiB at the sizes next to the present one.
fn adjoining(sizes: &[(u64, u64)], present: u64) -> impl Iterator<Item = u64> {
    let at = sizes.partition_point(|(size, _)| *size < present);
    let around = [at.wrapping_sub(2), at.wrapping_sub(1), at, at + 1];
    let values: Vec<u64> =
        around.iter().filter_map(|i| sizes.get(*i)).map(|(size, _)| (size >> 20) + 1).collect();
    values.into_iter().filter(|mib| *mib >= 21)
}

fn with_split(base: &Config, mib: u64) -> Config {
    Config { max_split_size: mib * MIB, ..base.clone() }
}

fn with_divisions(base: &Config, divisions: u64) -> Config {
    with_divisions_from(base, 0, divisions)
}

/// Divisions for sizes of 2^`from` MiB and more.
fn with_divisions_from(base: &Config, from: usize, divisions: u64) -> Config {
    let mut config = base.clone();
    // 1 and 0 both mean plain rounding; one spelling keeps settings comparable.
    let divisions = if divisions == 1 { 0 } else { divisions };
    for (bucket, value) in config.roundup_power2_divisions.iter_mut().enumerate() {
        *value = if bucket >= from.min(ROUNDUP_BUCKETS) { divisions } else { 0 };
    }
    config
}

fn with_large_segment(base: &Config, mib: u64) -> Config {
    let followed = base.max_non_split_rounding == base.large_segment_size;
    let size = mib * MIB;
    let rounding = if followed { size } else { base.max_non_split_rounding.max(size) };
    let split =
        if base.max_split_size == u64::MAX { u64::MAX } else { base.max_split_size.max(size) };
    Config {
        large_segment_size: size,
        max_non_split_rounding: rounding,
        max_split_size: split,
        ..base.clone()
    }
}

/// Each setting once, and only those that this version can be told; what people have now (`given`
/// settings at the front) is kept in any case.
fn distinct(configs: Vec<Config>, version: TorchVersion, given: usize) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::with_capacity(configs.len());
    for (i, config) in configs.into_iter().enumerate() {
        let known = settings.iter().any(|s| s.config == config);
        if !known && (i < given || config.is_expressible(version)) {
            settings.push(Setting::new(config, version));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terrain<'a>(sizes: &'a [(u64, u64)], baseline: &'a Config) -> Terrain<'a> {
        Terrain { version: TorchVersion::REFERENCE, sizes, limited: true, baseline }
    }

    #[test]
    fn every_setting_is_one_that_pytorch_accepts_and_occurs_once() {
        let sizes = [(30 * MIB, 900 * MIB), (200 * MIB, 800 * MIB), (700 * MIB, 700 * MIB)];
        let baseline = with_split(&Config::default(), 128);
        for version in [TorchVersion::new(2, 0), TorchVersion::new(2, 8), TorchVersion::REFERENCE] {
            let terrain = Terrain { version, ..terrain(&sizes, &baseline) };
            let settings = settings(&terrain);
            assert!(settings.len() >= 30, "{} in {version}", settings.len());
            for setting in &settings {
                let parsed = vramwise_model::settings::parse(&setting.conf, version);
                assert_eq!(parsed.map(|p| p.config).as_ref(), Ok(&setting.config));
            }
            let mut texts: Vec<_> = settings.iter().map(|s| &s.conf).collect();
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), settings.len());
        }
    }

    #[test]
    fn thresholds_stand_just_above_the_sizes_that_matter() {
        let sizes = [(30 * MIB, 900 * MIB), (200 * MIB, 800 * MIB)];
        assert_eq!(sizes::thresholds(&sizes, 21, 5), [31, 201]);
        let found =
            neighbours(&with_split(&Config::default(), 100), &terrain(&sizes, &Config::default()));
        assert!(found.iter().any(|s| s.conf.starts_with("max_split_size_mb:201")));
    }
}

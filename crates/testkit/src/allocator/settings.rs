//! Settings worth trying: every option, alone and mixed, at values where its rules bite.

use vramwise_model::settings::{Config, ROUNDUP_BUCKETS};

use crate::Rng;

const MIB: u64 = 1 << 20;

/// Random settings; about one in four is the default.
pub fn random_config(rng: &mut Rng) -> Config {
    let mut config = Config::default();
    if rng.one_in(4) {
        return config;
    }
    if rng.one_in(4) {
        config.large_segment_size = *rng.pick(&[12, 20, 32, 64]) * MIB;
        config.max_non_split_rounding = config.large_segment_size;
    }
    if rng.one_in(2) {
        let least = config.large_segment_size / MIB;
        config.max_split_size = (least + *rng.pick(&[0, 1, 12, 44, 100])) * MIB;
        if rng.one_in(2) {
            config.max_non_split_rounding = (least + *rng.pick(&[0, 5, 80])) * MIB;
        }
    }
    if rng.one_in(3) {
        config.roundup_power2_divisions = random_divisions(rng);
    }
    if rng.one_in(3) {
        config.garbage_collection_threshold = *rng.pick(&[0.05, 0.3, 0.5, 0.6, 0.8, 0.99]);
        config.per_process_memory_fraction = *rng.pick(&[0.3, 0.5, 0.9, 0.999]);
    } else if rng.one_in(4) {
        config.per_process_memory_fraction = *rng.pick(&[0.1, 0.35, 0.7, 1.0]);
    }
    config.expandable_segments = rng.one_in(3);
    config
}

fn random_divisions(rng: &mut Rng) -> [u64; ROUNDUP_BUCKETS] {
    let mut divisions = [*rng.pick(&[2, 4, 8, 16]); ROUNDUP_BUCKETS];
    if rng.one_in(2) {
        for bucket in &mut divisions {
            *bucket = *rng.pick(&[0, 1, 2, 4, 32]);
        }
    }
    divisions
}

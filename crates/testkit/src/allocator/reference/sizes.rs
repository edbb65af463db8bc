//! §1: from the request to the block size and the device request.

use vramwise_model::settings::Config;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// §1.2.
pub(super) fn round_size(config: &Config, requested: u64) -> u64 {
    if requested < 512 {
        return 512;
    }
    let d = config.roundup_power2_divisions[bucket(requested)];
    if d > 1 && requested > 512 * d {
        return divide(requested, d);
    }
    requested.div_ceil(512) * 512
}

/// §1.3, with the bounds written out.
fn bucket(size: u64) -> usize {
    let mut bucket = 0;
    while bucket < 15 && size >= (2 * MIB) << bucket {
        bucket += 1;
    }
    bucket
}

/// §1.4.
fn divide(s: u64, d: u64) -> u64 {
    let mut p = 1;
    while p * 2 <= s {
        p *= 2;
    }
    if p == s {
        return s;
    }
    let mut q = p;
    let mut left = d;
    while left >= 2 {
        q /= 2;
        left /= 2;
    }
    if q == 0 { 2 * p } else { s.div_ceil(q) * q }
}

/// §1.6.
pub(super) fn segment_size(config: &Config, rounded: u64) -> u64 {
    if rounded <= MIB {
        2 * MIB
    } else if rounded < 10 * MIB {
        config.large_segment_size
    } else {
        rounded.div_ceil(2 * MIB) * 2 * MIB
    }
}

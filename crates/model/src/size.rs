//! Sizes: how a request becomes a block size, and a block size a device request.
//!
//! Specification §1, PyTorch 2.11; unchanged since 2.0 apart from the configurable large segment.

use crate::settings::{Config, ROUNDUP_BUCKETS};

/// Rounding quantum and smallest block, bytes.
pub const MIN_BLOCK: u64 = 512;
/// Largest rounded size that the small pool serves, bytes.
pub const SMALL_MAX: u64 = 1 << 20;
/// Device request of every miss in the small pool; granule of small expandable segments, bytes.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// Rounded sizes below this share a large segment, bytes.
pub const MIN_LARGE: u64 = 10 << 20;
/// Granularity of device requests at and above [`MIN_LARGE`], bytes.
pub const ROUND_LARGE: u64 = 2 << 20;
/// Requests from this size on are refused before anything else (1 EiB).
pub const TOO_LARGE: u64 = 1 << 60;

/// The block size wanted for a request of `requested` > 0 bytes (§1.2).
pub fn round_size(config: &Config, requested: u64) -> u64 {
    if requested < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = config.roundup_power2_divisions[bucket(requested)];
    if divisions > 1 && requested > MIN_BLOCK.saturating_mul(divisions) {
        round_to_division(requested, divisions)
    } else {
        requested.next_multiple_of(MIN_BLOCK)
    }
}

/// Which entry of `roundup_power2_divisions` applies to an unrounded size (§1.3).
fn bucket(requested: u64) -> usize {
    let log = requested.max(1).ilog2();
    (log.saturating_sub(20) as usize).min(ROUNDUP_BUCKETS - 1)
}

/// Rounds up to the next of `divisions` equal steps between two powers of two (§1.4).
fn round_to_division(size: u64, divisions: u64) -> u64 {
    if size.is_power_of_two() {
        return size;
    }
    let floor = 1u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 { floor << 1 } else { size.next_multiple_of(step) }
}

/// Bytes asked of the device when no cached block serves a rounded size (§1.6).
pub fn segment_size(config: &Config, rounded: u64) -> u64 {
    if rounded <= SMALL_MAX {
        SMALL_SEGMENT
    } else if rounded < MIN_LARGE {
        config.large_segment_size
    } else {
        rounded.next_multiple_of(ROUND_LARGE)
    }
}

/// Whether a rounded size is served by the small pool (§1.7).
pub fn is_small(rounded: u64) -> bool {
    rounded <= SMALL_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn divided(divisions: u64) -> Config {
        Config { roundup_power2_divisions: [divisions; ROUNDUP_BUCKETS], ..Config::default() }
    }

    #[test]
    fn plain_requests_are_rounded_to_512_bytes() {
        let config = Config::default();
        for (requested, rounded) in
            [(1, 512), (511, 512), (512, 512), (513, 1024), (1_048_577, 1_049_088)]
        {
            assert_eq!(round_size(&config, requested), rounded);
        }
    }

    #[test]
    fn power_of_two_divisions_round_as_in_section_1_4() {
        let config = divided(4);
        for (requested, rounded) in [
            (1025, 1536),
            (1200, 1536),
            (2048, 2048),
            (2049, 2560),
            (5000, 5120),
            (100_000, 114_688),
            (1_048_577, 1_310_720),
            (3 * MIB + 1, 3_670_016),
            (100 * MIB, 117_440_512),
            (130 * MIB, 160 * MIB),
            (200 * MIB, 224 * MIB),
            (300 * MIB, 320 * MIB),
            (600 * MIB, 640 * MIB),
            (1100 * MIB, 1280 * MIB),
            (3000 * MIB, 3072 * MIB),
        ] {
            assert_eq!(round_size(&config, requested), rounded, "{requested}");
        }
        assert_eq!(round_size(&divided(1), 1025), 1536);
        assert_eq!(round_size(&divided(8), 3 << 30), 3 << 30);
    }

    #[test]
    fn device_requests_follow_the_rounded_size() {
        let config = Config::default();
        let asked = |requested| segment_size(&config, round_size(&config, requested));
        assert_eq!(asked(100), 2 * MIB);
        assert_eq!(asked(1_048_577), 20 * MIB);
        assert_eq!(asked(10_485_248), 20 * MIB);
        assert_eq!(asked(10_485_249), 10 * MIB);
        assert_eq!(asked(45 * MIB), 46 * MIB);
        let wide = Config { large_segment_size: 64 * MIB, ..Config::default() };
        assert_eq!(segment_size(&wide, 9 * MIB), 64 * MIB);
        assert_eq!(segment_size(&wide, 12 * MIB), 12 * MIB);
    }
}

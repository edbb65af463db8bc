//! What cuFFT needs beside its input and output.

use crate::rule::Workspace;

/// The longest transform of one dimension, of a power of two, that one kernel does without leaving the chip.
const ON_CHIP: u64 = 16_384;
/// From here on transforms of real numbers need a few bytes more for each of the batch.
const LONG: u64 = 65_536;

/// Bytes for `batch` transforms over `dims`, in single precision; `real` where one side is real numbers.
///
/// Found by asking cuFFT on an H200 about 1,893 plans: all of powers of two (one dimension up to 2^23, two up to 2,048², three up to
/// 128³) are met. Other lengths, and what is beyond these, are estimated: long ones need about their own size once more,
/// lengths with large prime factors much more.
#[must_use]
pub fn workspace(dims: &[u64], batch: u64, real: bool) -> Workspace {
    let numbers = dims.iter().fold(1_u64, |all, n| all.saturating_mul(*n));
    let longest = dims.iter().copied().max().unwrap_or(1);
    let each = if real { 4 } else { 8 };
    let copy = numbers.saturating_mul(each).saturating_mul(batch);
    let powers = dims.iter().all(|n| n.is_power_of_two());
    match dims.len() {
        1 if longest <= ON_CHIP => Workspace { bytes: 0, known: powers },
        1 => {
            let more = if real && longest >= LONG { 8 * batch } else { 0 };
            Workspace { bytes: copy.saturating_add(more), known: powers && longest <= 1 << 23 }
        }
        2 if powers && longest <= 2048 => Workspace { bytes: 0, known: true },
        3 if powers && longest <= 128 => Workspace { bytes: 0, known: true },
        _ => Workspace { bytes: if longest <= 1024 { 0 } else { copy }, known: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_need_what_cufft_told() {
        for (dims, batch, real, bytes) in [
            (&[512][..], 64, true, 0_u64),
            (&[16_384], 8, false, 0),
            (&[32_768], 8, false, 2_097_152),
            (&[32_768], 64, true, 8_388_608),
            (&[65_536], 1, true, 262_152),
            (&[8_388_608], 64, true, 2_147_484_160),
            (&[1024, 1024], 32, false, 0),
            (&[64, 64, 64], 4, true, 0),
        ] {
            let found = workspace(dims, batch, real);
            assert_eq!(found, Workspace { bytes, known: true }, "{dims:?}");
        }
    }

    #[test]
    fn other_lengths_are_estimates() {
        for dims in [&[1009_u64][..], &[22_050], &[1080, 1080], &[u64::MAX, 3], &[]] {
            assert!(!workspace(dims, 1, false).known || dims.is_empty(), "{dims:?}");
        }
        assert_eq!(workspace(&[22_050], 8, false).bytes, 1_411_200);
    }
}

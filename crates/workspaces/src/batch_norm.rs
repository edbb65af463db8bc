//! Workspaces of batch normalisation with channels innermost.
//!
//! The sums agree with all 672 single-precision shapes that were measured on an H200 with cuDNN 9.19 (channels 3 to
//! 2,048, one to twelve million values a channel). With channels before space nothing is needed, and nothing is ever
//! reserved.

use crate::keys::{BatchNorm, Tensor};

/// Bytes for a training pass over `x`; `None` where no rule is known (other types, other ranks).
#[must_use]
pub fn workspace(which: BatchNorm, x: &Tensor) -> Option<u64> {
    let dimensions: Vec<u64> =
        x.dimensions.iter().map(|d| u64::try_from(*d).ok()).collect::<Option<_>>()?;
    let [batch, channels, space @ ..] = dimensions.as_slice() else { return None };
    if x.strides.get(1) != Some(&1) || which == BatchNorm::Reserve {
        return Some(0);
    }
    if x.data_type != 0 || space.len() != 2 {
        return None;
    }
    let rows = batch.checked_mul(space.iter().product())?;
    // Channels are read in fours where they divide.
    let tile = if channels % 4 == 0 { 64 } else { 16 };
    let tiles = channels.div_ceil(tile);
    Some(match which {
        BatchNorm::Forward => tiles * (rows.div_ceil(64) * (8 * tile + 4) + 4) + 1072,
        _ => tiles * (rows.div_ceil(96) * 8 * tile + 4) + 1056,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(dimensions: [i32; 4]) -> Tensor {
        let [_, c, h, w] = dimensions;
        Tensor {
            data_type: 0,
            dimensions: dimensions.to_vec(),
            strides: vec![c * h * w, 1, w * c, c],
        }
    }

    #[test]
    fn measured_shapes_are_met() {
        for (dimensions, forward, backward) in [
            ([64, 256, 14, 14], 405_632, 269_360),
            ([64, 512, 28, 28], 3_237_456, 2_143_296),
            ([32, 24, 56, 56], 810_164, 536_612),
            ([32, 64, 55, 55], 781_784, 517_668),
            ([32, 58, 28, 28], 208_064, 135_216),
            ([128, 110, 1, 1], 2_948, 2_876),
            ([64, 6, 1, 1], 1_208, 1_188),
        ] {
            assert_eq!(workspace(BatchNorm::Forward, &last(dimensions)), Some(forward));
            assert_eq!(workspace(BatchNorm::Backward, &last(dimensions)), Some(backward));
            assert_eq!(workspace(BatchNorm::Reserve, &last(dimensions)), Some(0));
        }
    }

    #[test]
    fn channels_before_space_need_nothing() {
        let first = Tensor {
            data_type: 0,
            dimensions: vec![32, 64, 56, 56],
            strides: vec![200_704, 3136, 56, 1],
        };
        assert_eq!(workspace(BatchNorm::Forward, &first), Some(0));
    }

    #[test]
    fn unknown_ground_gives_no_answer() {
        assert_eq!(
            workspace(BatchNorm::Forward, &Tensor { data_type: 9, ..last([2, 8, 4, 4]) }),
            None
        );
        assert_eq!(workspace(BatchNorm::Forward, &Tensor::default()), None);
    }
}

//! The workspace of CTC losses.

use crate::keys::Tensor;

/// Bytes for `cudnnGetCTCLossWorkspaceSize_v8` with the deterministic algorithm, from all 90 shapes that were measured
/// (steps 50 to 1,000, batches 1 to 32, 29 to 1,000 classes) with labels of at most 255, which is what PyTorch says.
/// `None` elsewhere.
#[must_use]
pub fn workspace(algorithm: i32, probabilities: &Tensor, longest: i32) -> Option<u64> {
    let [steps, batch, classes] = probabilities.dimensions.as_slice() else { return None };
    let number = |n: i32| u64::try_from(n).ok();
    let (steps, batch, classes) = (number(*steps)?, number(*batch)?, number(*classes)?);
    if algorithm != 0 || probabilities.data_type != 0 || longest != 255 {
        return None;
    }
    // Blanks stand before, between and after the labels.
    let states = 2 * 255 + 1;
    Some(batch * (4 * steps * classes + 8 * steps * states + 4 * (states + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_shapes_are_met() {
        for (dimensions, bytes) in [
            ([100, 8, 1000], 6_486_816),
            ([100, 32, 80], 14_171_264),
            ([1000, 8, 32], 33_744_416),
            ([100, 1, 80], 442_852),
        ] {
            let tensor = Tensor { data_type: 0, dimensions: dimensions.to_vec(), strides: vec![] };
            assert_eq!(workspace(0, &tensor, 255), Some(bytes));
            assert_eq!(workspace(1, &tensor, 255), None);
        }
    }
}

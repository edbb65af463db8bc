//! Which of several ranks stands out.

/// Fewer values than this have no outliers.
const FEWEST: usize = 3;
/// A value within this share of the median never stands out.
const NEAR: f64 = 0.05;
/// How many median distances from the median a value must be away.
const FAR: f64 = 4.0;

/// The median of some values; 0 of none. Of an even number the lower middle one.
pub fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The positions of values that stand out: further from the median than a twentieth of it, and than
/// four times the median distance.
pub fn outliers(values: &[u64]) -> Vec<usize> {
    if values.len() < FEWEST {
        return Vec::new();
    }
    let middle = median(values);
    let distances: Vec<u64> = values.iter().map(|v| v.abs_diff(middle)).collect();
    let usual = median(&distances) as f64;
    let allowed = (middle as f64 * NEAR).max(usual * FAR);
    (0..values.len()).filter(|i| distances[*i] as f64 > allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_that_differs_stands_out() {
        assert_eq!(outliers(&[100, 101, 99, 100, 140]), [4]);
        assert_eq!(outliers(&[100, 40, 99, 100]), [1]);
        assert_eq!(outliers(&[0, 0, 0, 5]), [3]);
    }

    #[test]
    fn what_varies_or_is_too_little_to_tell_has_no_outliers() {
        assert!(outliers(&[100, 104, 97, 101]).is_empty());
        assert!(outliers(&[100, 150, 200, 250, 300]).is_empty());
        assert!(outliers(&[1, 1000]).is_empty());
        assert!(outliers(&[]).is_empty());
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(median(&[]), 0);
    }
}

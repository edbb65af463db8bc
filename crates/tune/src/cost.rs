//! What device calls cost: measured on an idle H200 (driver 580), microseconds.
//!
//! `cudaMalloc` and `cudaFree` were timed at 2, 20, 64, 512 and 2,048 MiB, the virtual memory calls per
//! physical handle. Between the points the cost is taken for linear in the size. A busy card is slower
//! (up to ten times for virtual memory calls), so this is a lower bound.

/// (bytes, `cudaMalloc` µs, `cudaFree` µs).
const ORDINARY: [(f64, f64, f64); 5] = [
    (2.0, 41.0, 38.8),
    (20.0, 36.8, 40.1),
    (64.0, 39.2, 49.3),
    (512.0, 101.6, 292.1),
    (2048.0, 123.3, 634.3),
];
/// Creating, mapping and opening one physical handle of 20 MiB, µs.
const MAP_HANDLE: f64 = 9.4 + 0.7 + 21.7;
/// Unmapping and releasing one, µs.
const UNMAP_HANDLE: f64 = 14.8 + 19.4;

/// Microseconds of a `cudaMalloc` (`true`) or `cudaFree` of `bytes`.
#[allow(clippy::cast_precision_loss)] // a cost estimate
fn ordinary(bytes: u64, malloc: bool) -> f64 {
    let mib = bytes as f64 / f64::from(1 << 20);
    let cost = |p: &(f64, f64, f64)| if malloc { p.1 } else { p.2 };
    let above = ORDINARY.iter().position(|p| p.0 >= mib).unwrap_or(ORDINARY.len() - 1);
    let below = above.saturating_sub(1);
    let (a, b) = (&ORDINARY[below], &ORDINARY[above]);
    if b.0 <= a.0 {
        return cost(a);
    }
    cost(a) + (cost(b) - cost(a)) * ((mib - a.0) / (b.0 - a.0)).max(0.0)
}

/// Estimated milliseconds of a run's device calls: `calls` of ordinary segments with their bytes in all,
/// and the bytes mapped and unmapped in granules of `granule` bytes.
#[allow(clippy::cast_precision_loss)] // a cost estimate
pub(crate) fn milliseconds(
    (mallocs, malloc_bytes): (u64, u64),
    (frees, free_bytes): (u64, u64),
    (mapped, unmapped): (u64, u64),
    granule: u64,
) -> f64 {
    let average = |n: u64, bytes: u64| bytes.checked_div(n).unwrap_or(0);
    let malloc = mallocs as f64 * ordinary(average(mallocs, malloc_bytes), true);
    let free = frees as f64 * ordinary(average(frees, free_bytes), false);
    let handles = |bytes: u64| (bytes as f64 / granule as f64).ceil();
    (malloc + free + handles(mapped) * MAP_HANDLE + handles(unmapped) * UNMAP_HANDLE) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_the_measured_points() {
        assert!((ordinary(2 << 20, true) - 41.0).abs() < 1e-9);
        assert!((ordinary(2048 << 20, false) - 634.3).abs() < 1e-9);
        assert!(ordinary(4096 << 20, false) > 634.3);
        let ms = milliseconds((1000, 1000 * (20 << 20)), (0, 0), (0, 0), 20 << 20);
        assert!((ms - 36.8).abs() < 1e-6, "{ms}");
    }
}

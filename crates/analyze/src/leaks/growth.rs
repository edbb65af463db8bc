//! What of the live memory grows, and what only filled.

use std::collections::BTreeMap;

use super::lifetimes::Group;
use super::{Filled, Leak};

/// Ends of steps that are needed for a verdict.
pub(super) const LEAST_ENDS: usize = 4;

/// Bytes and blocks of one origin at the end of each step.
struct Series {
    bytes: Vec<u64>,
    blocks: Vec<u64>,
}

impl Series {
    /// At the ends of the steps `watched`, of `ends` in all.
    fn of(group: &Group, ends: usize, watched: &[usize]) -> Self {
        let (mut bytes, mut blocks) = (vec![0i128; ends + 1], vec![0i128; ends + 1]);
        for span in &group.spans {
            let (from, to) = (span.from as usize, span.to as usize);
            bytes[from] += i128::from(span.bytes);
            bytes[to] -= i128::from(span.bytes);
            blocks[from] += 1;
            blocks[to] -= 1;
        }
        let sums = |changes: Vec<i128>| {
            let running = changes.iter().scan(0i128, |sum, change| {
                *sum += change;
                Some(u64::try_from(*sum).unwrap_or(0))
            });
            let all: Vec<u64> = running.take(ends).collect();
            watched.iter().map(|step| all[*step]).collect()
        };
        Self { bytes: sums(bytes), blocks: sums(blocks) }
    }
}

/// How a series moved over the steps that were watched.
struct Moves {
    steps: usize,
    grew: usize,
    fell: usize,
    /// Share of the growth that fell into the second half.
    late: f64,
    /// Whether it grew in the last third.
    lasts: bool,
    last_growth: usize,
    /// Whether every step added the same.
    even: bool,
}

impl Moves {
    fn of(values: &[u64]) -> Self {
        let steps = values.len().saturating_sub(1);
        let rise = |i: usize| values[i + 1].saturating_sub(values[i]);
        let grown: Vec<usize> = (0..steps).filter(|i| rise(*i) > 0).collect();
        let total: u64 = grown.iter().map(|i| rise(*i)).fold(0, u64::saturating_add);
        let late = (steps / 2..steps).map(rise).fold(0, u64::saturating_add);
        let first = grown.first().map(|i| rise(*i));
        Self {
            steps,
            grew: grown.len(),
            fell: (0..steps).filter(|i| values[i + 1] < values[*i]).count(),
            late: if total == 0 { 0.0 } else { late as f64 / total as f64 },
            lasts: grown.last().is_some_and(|last| *last >= steps - steps.div_ceil(3)),
            last_growth: grown.last().map_or(0, |i| i + 1),
            even: grown.len() == steps && (0..steps).all(|i| Some(rise(i)) == first),
        }
    }
}

/// Steps at the beginning that are not looked at: optimizers and caches come to be in them.
pub(super) fn warm_up(ends: usize) -> usize {
    (ends / 5).min(2)
}

/// A group's verdict: how sure it is that it leaks.
fn leaks(series: &Series, from: usize) -> Option<f64> {
    let (bytes, blocks) = (&series.bytes[from..], &series.blocks[from..]);
    let (b, n) = (Moves::of(bytes), Moves::of(blocks));
    if b.steps < LEAST_ENDS - 1 || b.fell > 0 || b.grew < LEAST_ENDS - 1 || !b.lasts {
        return None;
    }
    let share = b.grew as f64 / b.steps as f64;
    // More blocks than before, in most steps.
    if n.fell == 0 && n.grew >= 3 && n.lasts && share >= 0.75 {
        let repeated = 1.0 - 0.5f64.powi(i32::try_from(b.grew).unwrap_or(i32::MAX));
        return Some(repeated * (0.7 + 0.3 * share));
    }
    // More blocks every few steps, as much in the second half as in the first: a validation or a log.
    if n.fell == 0 && n.grew >= 4 && n.lasts && n.late >= 0.35 && b.late >= 0.35 && share >= 0.1 {
        return Some(0.6);
    }
    // As many blocks, larger by the same amount in every step: something is concatenated.
    if b.even && b.steps >= 5 && n.grew == 0 && n.fell == 0 {
        return Some(0.6);
    }
    None
}

/// Sorts the groups into those that leak and those that only filled; groups of one place are one.
pub(super) fn judge(
    groups: Vec<Group>,
    ends: usize,
    watched: &[usize],
    mut name: impl FnMut(&Group) -> (String, Vec<String>),
) -> (Vec<Leak>, Vec<Filled>) {
    let from = warm_up(watched.len());
    let mut leaking: Vec<Leak> = Vec::new();
    let mut filled: BTreeMap<String, Filled> = BTreeMap::new();
    for group in groups {
        let series = Series::of(&group, ends, watched);
        if let Some(confidence) = leaks(&series, from) {
            let (place, frames) = name(&group);
            leaking.push(leak(place, frames, &series, from, confidence));
        } else if let Some(step) = fills(&series) {
            let (place, _) = name(&group);
            let bytes = series.bytes.last().copied().unwrap_or(0);
            let entry = filled.entry(place.clone());
            let entry = entry.or_insert(Filled { place, bytes: 0, last_step: 0 });
            entry.bytes = entry.bytes.saturating_add(bytes);
            entry.last_step = entry.last_step.max(watched[step - 1] + 1);
        }
    }
    leaking.sort_by(|a, b| {
        b.bytes_per_step.cmp(&a.bytes_per_step).then_with(|| a.place.cmp(&b.place))
    });
    let mut filled: Vec<Filled> = filled.into_values().collect();
    filled.sort_by_key(|f| std::cmp::Reverse(f.bytes));
    (leaking, filled)
}

/// Grew in two steps or more, the first aside, never fell, and has not grown for at least two: the last
/// step in which it grew.
fn fills(series: &Series) -> Option<usize> {
    let moves = Moves::of(&series.bytes);
    let quiet = moves.steps - moves.last_growth;
    (moves.grew >= 2 && moves.fell == 0 && quiet >= 2).then_some(moves.last_growth + 1)
}

fn leak(place: String, frames: Vec<String>, series: &Series, from: usize, confidence: f64) -> Leak {
    let (bytes, blocks) = (&series.bytes[from..], &series.blocks[from..]);
    let moves = Moves::of(bytes);
    let rise = |values: &[u64]| {
        let (first, last) = (values.first().copied(), values.last().copied());
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
    };
    let steps = moves.steps.max(1);
    Leak {
        place,
        frames,
        bytes_per_step: rise(bytes) / steps as u64,
        blocks_per_step: rise(blocks) as f64 / steps as f64,
        steps: moves.steps,
        grew: moves.grew,
        bytes: rise(bytes),
        confidence: (confidence.min(0.99) * 100.0).round() / 100.0,
        series: bytes.to_vec(),
    }
}

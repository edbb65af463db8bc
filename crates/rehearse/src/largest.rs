//! The largest value that fits: doubled until one does not, then halved in between.
//!
//! Both sides of the answer are always tried: the value and the next one. Memory that was seen at two
//! values serves as a hint where to try next, never as an answer.

/// Hints that are followed once a value is known that does not fit; half way is sure to end.
const HINTS: u32 = 5;

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The value.
    pub value: u64,
    /// Whether the program ran to its end.
    pub fits: bool,
    /// The peak of bytes in use on the device.
    pub peak: u64,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The largest value that fits; `None` where the smallest does not.
    pub largest: Option<u64>,
    /// Every trial, in order.
    pub trials: Vec<Trial>,
}

/// Searches `lowest..=highest` for the largest value for which `try_one` says that it fits, supposing that
/// whatever is smaller than a value that fits does fit. `capacity` is the card's bytes.
///
/// # Errors
/// The first error of `try_one`.
pub fn search<E>(
    lowest: u64,
    highest: u64,
    capacity: u64,
    mut try_one: impl FnMut(u64) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut trials: Vec<Trial> = Vec::new();
    let (mut fits, mut fails): (Option<u64>, Option<u64>) = (None, None);
    let mut hints = HINTS;
    loop {
        let next = match (fits, fails) {
            (None, None) => lowest,
            (None, Some(_)) => break,
            (Some(fits), None) if fits >= highest => break,
            (Some(fits), None) => {
                let doubled = fits.saturating_mul(2).max(fits + 1);
                hint(&trials, capacity).unwrap_or(doubled).clamp(fits + 1, highest)
            }
            (Some(fits), Some(fails)) if fails - fits <= 1 => break,
            (Some(fits), Some(fails)) => {
                let half = fits + (fails - fits) / 2;
                let hinted = hint(&trials, capacity).map(|v| v.clamp(fits + 1, fails - 1));
                match hinted {
                    Some(hinted) if hints > 0 => {
                        hints -= 1;
                        hinted
                    }
                    _ => half,
                }
            }
        };
        let trial = try_one(next)?;
        if trial.fits {
            fits = Some(next);
        } else {
            fails = Some(next);
        }
        trials.push(trial);
    }
    Ok(Found { largest: fits, trials })
}

/// Where two values that fit would lead if memory grew by a constant amount from one to the next; the next
/// one if that is what was just found to fit.
fn hint(trials: &[Trial], capacity: u64) -> Option<u64> {
    let mut fitting: Vec<&Trial> = trials.iter().filter(|trial| trial.fits).collect();
    fitting.sort_by_key(|trial| trial.value);
    // Two values that lie apart, since memory grows in steps.
    let (high, rest) = fitting.split_last()?;
    let low = rest.iter().rev().find(|low| low.value <= high.value / 2).or(rest.first())?;
    let grown = high.peak.checked_sub(low.peak).filter(|grown| *grown > 0)?;
    let room = capacity.saturating_sub(high.peak);
    let more = u128::from(room) * u128::from(high.value - low.value) / u128::from(grown);
    Some(high.value.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).max(high.value + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1000;

    /// Searches with a program that takes `memory(value)` bytes.
    fn searched(lowest: u64, highest: u64, memory: impl Fn(u64) -> u64) -> Found {
        let trial = |value| {
            let peak = memory(value);
            Ok::<_, ()>(Trial { value, fits: peak <= CAPACITY, peak: peak.min(CAPACITY) })
        };
        search(lowest, highest, CAPACITY, trial).expect("no trial fails")
    }

    fn tried(found: &Found, value: u64) -> Option<bool> {
        found.trials.iter().find(|trial| trial.value == value).map(|trial| trial.fits)
    }

    #[test]
    fn both_sides_of_the_answer_are_tried() {
        let shapes: [fn(u64) -> u64; 4] = [
            |v| 100 + 7 * v,
            |v| v * v,
            |v| 100 + 64 * v.div_ceil(13),
            |v| if v > 40 { 5000 } else { 10 },
        ];
        for memory in shapes {
            for highest in [1, 2, 33, 200] {
                let found = searched(1, highest, memory);
                let truth = (1..=highest).filter(|v| memory(*v) <= CAPACITY).max();
                assert_eq!(found.largest, truth);
                let largest = truth.expect("1 fits");
                assert_eq!(tried(&found, largest), Some(true));
                if largest < highest {
                    assert_eq!(tried(&found, largest + 1), Some(false));
                }
            }
        }
    }

    #[test]
    fn a_straight_line_takes_few_trials() {
        let found = searched(1, 1 << 20, |v| 100 + v / 100);
        assert_eq!(found.largest, Some(90_099));
        // Doubling and halving alone would take 37.
        assert!(found.trials.len() <= 28, "{}", found.trials.len());
        let found = searched(1, 512, |v| 100 + 7 * v);
        assert!(found.trials.len() <= 6, "{:?}", found.trials);
    }

    #[test]
    fn where_the_smallest_does_not_fit_nothing_does() {
        let found = searched(4, 512, |_| 2000);
        assert_eq!((found.largest, found.trials.len()), (None, 1));
    }

    #[test]
    fn no_value_is_tried_twice() {
        for rate in 1..60 {
            let found = searched(1, 512, |v| 10 + rate * v);
            let mut values: Vec<u64> = found.trials.iter().map(|trial| trial.value).collect();
            values.sort_unstable();
            let all = values.len();
            values.dedup();
            assert_eq!(values.len(), all);
        }
    }
}

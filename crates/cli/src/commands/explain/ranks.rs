//! Which rank ran out of memory, and which first, over several files or the ranks of one log.

use std::path::Path;

use vramwise_analyze::oom::{Cause, Stamp};
use vramwise_trace::RankName;

use super::{Explained, Found};

/// One error of one rank.
#[derive(Clone, Debug)]
pub(super) struct RanOut {
    pub(super) file: String,
    pub(super) rank: Option<u32>,
    /// Where in the file: a line of a log, an event of a history.
    pub(super) place: usize,
    pub(super) in_log: bool,
    pub(super) time: Option<Stamp>,
    pub(super) asked: Option<u64>,
    pub(super) cause: Cause,
}

/// All errors, in the order of the files, and the index of the first in time where that can be told:
/// where every one has a time, and the times say equally much.
pub(super) struct Ranks {
    pub(super) errors: Vec<RanOut>,
    pub(super) first: Option<usize>,
}

impl Ranks {
    pub(super) fn of(explained: &[Explained]) -> Self {
        let errors: Vec<RanOut> = explained.iter().flat_map(errors).collect();
        let first = first(&errors);
        Self { errors, first }
    }

    /// Whether there is more than one process to tell apart.
    pub(super) fn several(&self) -> bool {
        let key = |e: &RanOut| (e.file.clone(), e.rank);
        let one = self.errors.first().map(key);
        self.errors.iter().any(|e| Some(key(e)) != one)
    }
}

fn errors(one: &Explained) -> Vec<RanOut> {
    let named = RankName::of(Path::new(&one.file)).rank;
    match &one.found {
        Found::Log(report) => report
            .explanations
            .iter()
            .map(|e| RanOut {
                file: one.file.clone(),
                rank: e.event.rank.or(named),
                place: e.event.line,
                in_log: true,
                time: e.stamp,
                asked: e.event.numbers.tried.map(|a| a.bytes),
                cause: e.cause,
            })
            .collect(),
        Found::Snapshot(devices) => devices
            .iter()
            .filter_map(|d| d.failure.as_ref())
            .map(|failure| RanOut {
                file: one.file.clone(),
                rank: named,
                place: failure.event,
                in_log: false,
                time: failure.time_us.and_then(unix).filter(|_| failure.recorded),
                asked: Some(failure.account.segment),
                cause: failure.cause,
            })
            .collect(),
    }
}

fn unix(time_us: u64) -> Option<Stamp> {
    let time_us = i64::try_from(time_us).ok()?;
    Some(Stamp { time_us, has_year: true, has_zone: true })
}

fn first(errors: &[RanOut]) -> Option<usize> {
    let start = errors.first()?.time?;
    if errors.len() < 2 {
        return None;
    }
    let times: Vec<Stamp> = errors.iter().map(|e| e.time).collect::<Option<_>>()?;
    if !times.iter().all(|t| t.comparable(&start)) {
        return None;
    }
    let earliest = times.iter().map(|t| t.time_us).min()?;
    let mut at = (0..times.len()).filter(|i| times[*i].time_us == earliest);
    // Two at the same moment: neither is first.
    match (at.next(), at.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// A time in words: UTC or local time of day with its date, as far as known.
pub(super) fn shown(stamp: &Stamp) -> String {
    let seconds = stamp.time_us.div_euclid(1_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let clock = format!(
        "{:02}:{:02}:{:02}.{:03}",
        second / 3600,
        second / 60 % 60,
        second % 60,
        stamp.time_us.rem_euclid(1_000_000) / 1000
    );
    if !stamp.has_year {
        return clock;
    }
    // Days to a date, in years that begin in March.
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let in_era = z.rem_euclid(146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let of_year = in_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let month = if part < 10 { part + 3 } else { part - 9 };
    let date = of_year - (153 * part + 2) / 5 + 1;
    let year = year + era * 400 + i64::from(month <= 2);
    let zone = if stamp.has_zone { " UTC" } else { "" };
    format!("{year:04}-{month:02}-{date:02} {clock}{zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_a_date() {
        let at = |time_us| shown(&Stamp { time_us, has_year: true, has_zone: true });
        assert_eq!(at(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(at(1_772_368_496_789_000), "2026-03-01 12:34:56.789 UTC");
        assert_eq!(at(951_782_400_000_000), "2000-02-29 00:00:00.000 UTC");
    }
}

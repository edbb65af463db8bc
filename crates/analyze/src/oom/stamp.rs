//! When something in a log happened, as its lines say.
//!
//! Known are dates with times as Python's logging, Kubernetes, syslog's newer form and most loggers
//! write them (`2026-03-01 12:34:56,789`, `2026-03-01T12:34:56.789Z`, with `/` for `-` too), and
//! glog's (`E0301 12:34:56.789012`).

use super::joiner::Log;

/// A moment in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Microseconds since 1970 where the year is known, else since the beginning of the year; of
    /// local time where no zone is written.
    pub time_us: i64,
    /// Whether the year is known.
    pub has_year: bool,
    /// Whether the zone is written.
    pub has_zone: bool,
}

impl Stamp {
    /// Which of two came first can be told only of two that say as much.
    pub fn comparable(&self, other: &Stamp) -> bool {
        self.has_year == other.has_year && self.has_zone == other.has_zone
    }
}

/// Lines before an error that are looked through for a time.
const LINES_BEFORE: usize = 100;

/// The time of the line, or else of the nearest line before it that has one.
pub(super) fn stamp_near(log: &Log<'_>, index: usize) -> Option<Stamp> {
    let first = index.saturating_sub(LINES_BEFORE);
    let lines = log.lines.get(first..=index.min(log.lines.len().checked_sub(1)?))?;
    lines.iter().rev().find_map(|line| stamp_in(line.text))
}

/// The first time in a line.
fn stamp_in(line: &str) -> Option<Stamp> {
    let bytes = line.as_bytes();
    let starts = (0..bytes.len().min(200)).filter(|i| {
        let before = i.checked_sub(1).and_then(|i| bytes.get(i));
        !before.is_some_and(u8::is_ascii_alphanumeric)
    });
    starts.into_iter().find_map(|at| full(&bytes[at..]).or_else(|| glog(&bytes[at..])))
}

/// `2026-03-01 12:34:56,789`.
fn full(bytes: &[u8]) -> Option<Stamp> {
    let year = number(bytes, 0, 4)?;
    let separator = *bytes.get(4)?;
    let (month, day) = (number(bytes, 5, 2)?, number(bytes, 8, 2)?);
    if !matches!(separator, b'-' | b'/') || bytes.get(7) != Some(&separator) {
        return None;
    }
    if !matches!(bytes.get(10), Some(b' ' | b'T' | b'_')) || !(1990..2200).contains(&year) {
        return None;
    }
    let (us, used) = time(bytes.get(11..)?)?;
    let zone = zone(bytes.get(11 + used..).unwrap_or(&[]));
    let day_us = days(year, month, day)?.checked_mul(86_400_000_000)?;
    let time_us = day_us + us - zone.unwrap_or(0);
    Some(Stamp { time_us, has_year: true, has_zone: zone.is_some() })
}

/// `E0301 12:34:56.789012`.
fn glog(bytes: &[u8]) -> Option<Stamp> {
    if !matches!(bytes.first(), Some(b'I' | b'W' | b'E' | b'F')) || bytes.get(5) != Some(&b' ') {
        return None;
    }
    let (us, _) = time(bytes.get(6..)?)?;
    let day = days(2000, number(bytes, 1, 2)?, number(bytes, 3, 2)?)? - days(2000, 1, 1)?;
    Some(Stamp { time_us: day * 86_400_000_000 + us, has_year: false, has_zone: false })
}

/// `12:34:56`, with a fraction or not: its microseconds and its length.
fn time(bytes: &[u8]) -> Option<(i64, usize)> {
    let (hour, minute, second) = (number(bytes, 0, 2)?, number(bytes, 3, 2)?, number(bytes, 6, 2)?);
    if bytes.get(2) != Some(&b':') || bytes.get(5) != Some(&b':') {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut us = ((hour * 60 + minute) * 60 + second) * 1_000_000;
    let mut used = 8;
    if matches!(bytes.get(8), Some(b'.' | b',')) {
        let digits = bytes[9..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut worth = 100_000;
        for digit in &bytes[9..9 + digits.min(6)] {
            us += i64::from(digit - b'0') * worth;
            worth /= 10;
        }
        used = if digits > 0 { 9 + digits } else { 8 };
    }
    Some((us, used))
}

/// `Z` or `+02:00` right behind a time: microseconds ahead of UTC.
fn zone(bytes: &[u8]) -> Option<i64> {
    let sign = match bytes.first()? {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = number(bytes, 1, 2)?;
    let minutes = number(bytes, 3, 2).or_else(|| number(bytes, 4, 2)).unwrap_or(0);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000_000)
}

fn number(bytes: &[u8], at: usize, digits: usize) -> Option<i64> {
    let text = bytes.get(at..at + digits)?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |sum, b| sum * 10 + i64::from(b - b'0')))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March put the leap day at their end.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = y / 4 - y / 100 + y / 400;
    Some(y * 365 + leap + (153 * m + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2026, 11, 29), Some(20_786));
        assert_eq!(days(2026, 13, 1), None);
    }

    #[test]
    fn times_are_found_in_the_forms_that_loggers_write() {
        let us = |text| stamp_in(text).map(|s| s.time_us);
        let at = 1_772_368_496_789_000;
        assert_eq!(us("[rank1]: 2026-03-01 12:34:56,789 ERROR"), Some(at));
        assert_eq!(us("2026-03-01T12:34:56.789Z stderr F boom"), Some(at));
        assert_eq!(us("2026/03/01 14:34:56.789+02:00"), Some(at));
        let glog = stamp_in("[rank0]:[E0301 12:34:56.789012 x.cpp:1]").unwrap();
        assert_eq!(
            (glog.has_year, glog.time_us),
            (false, (60 * 86_400 + 45_296) * 1_000_000 + 789_012)
        );
        for none in ["step 2026-03-01", "1.25it/s", "2026-03-01 99:00:00", "12:34:56", ""] {
            assert_eq!(us(none), None, "{none}");
        }
    }
}

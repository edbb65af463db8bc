//! The checks themselves: figures against limits, without any input or output.

use std::str::FromStr;

use vramwise_analyze::figures::Figures;
use vramwise_analyze::leaks::{DeviceLeaks, StepSource};
use vramwise_analyze::peak::Peak;
use vramwise_types::Human;

use crate::figures::{Bytes, FragmentationReport, percent_signed};
use crate::text::{counted, grouped};

/// A percentage that is not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percent(pub(super) f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches('%').trim_end();
        match number.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(Self(value)),
            _ => Err("write a percentage, such as 10% or 2.5%".to_owned()),
        }
    }
}

/// A part of a whole; for clap.
pub(super) fn share(text: &str) -> Result<Percent, String> {
    let percent: Percent = text.parse()?;
    if percent.0 > 100.0 {
        return Err("a share is at most 100%".to_owned());
    }
    Ok(percent)
}

/// What must not be exceeded; `None` = not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) peak_reserved: Option<u64>,
    pub(super) peak_allocated: Option<u64>,
    pub(super) fragmentation: Option<Percent>,
    /// Bytes a step.
    pub(super) growth: Option<u64>,
    pub(super) regression: Option<Percent>,
}

impl Limits {
    pub(super) fn is_empty(&self) -> bool {
        self.peak_reserved.is_none()
            && self.peak_allocated.is_none()
            && self.fragmentation.is_none()
            && self.growth.is_none()
            && self.regression.is_none()
    }
}

/// One device as it was found.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    /// What grows; `None` where there is no history, or nobody asked.
    pub(super) growth: Option<DeviceLeaks>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// What would have to be measured is not known: nobody may take this for a success.
    Unchecked,
}

/// One check and how it ended.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) file: String,
    pub(super) device: u32,
    /// `peak-reserved`, `peak-allocated`, `fragmentation`, `growth-per-step`, `regression-reserved`
    /// or `regression-allocated`.
    pub(super) check: &'static str,
    /// For people.
    pub(super) value: String,
    /// For people.
    pub(super) limit: String,
    /// Bytes (a step, of growth), or percent of fragmentation; `None` where it is not known.
    pub(super) measured: Option<f64>,
    /// In the same unit.
    pub(super) allowed: f64,
    /// Whether what was measured is exact.
    pub(super) exact: bool,
    pub(super) outcome: Outcome,
    /// Why it did not pass, or what to know although it did.
    pub(super) reason: Option<String>,
}

impl Verdict {
    /// The figures cannot be right: neither is what was measured, whichever side of the limit it is on.
    fn leave_unchecked(&mut self, why: &str) {
        self.outcome = Outcome::Unchecked;
        (self.measured, self.exact) = (None, false);
        "not known".clone_into(&mut self.value);
        self.reason = Some(why.to_owned());
    }

    pub(super) fn passed(&self) -> bool {
        self.outcome == Outcome::Passed
    }
}

impl Outcome {
    fn of(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }

    /// Of a figure that may be a lower bound, which is proof only above the limit.
    fn of_bound(passed: bool, exact: bool) -> Self {
        if passed && !exact { Self::Unchecked } else { Self::of(passed) }
    }
}

/// All checks of one device; `old` are the baseline's devices.
pub(super) fn check(
    file: &str,
    measured: &Measured,
    old: &[Measured],
    limits: &Limits,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let now = &measured.figures;
    let maker = Maker { file, device: now.device };
    let peaks = now.peaks.as_ref();
    let reserved = peaks.map(|p| &p.reserved);
    let allocated = peaks.map(|p| &p.allocated);
    let impossible = |m: &Measured| m.figures.peaks.as_ref().and_then(|p| p.impossible.clone());
    if let Some(limit) = limits.peak_reserved {
        verdicts.push(maker.bytes("peak-reserved", "reserved", reserved, limit));
    }
    if let Some(limit) = limits.peak_allocated {
        verdicts.push(maker.bytes("peak-allocated", "allocated", allocated, limit));
    }
    if let Some(limit) = limits.fragmentation {
        verdicts.push(maker.fragmentation(now, limit));
    }
    if let Some(why) = impossible(measured) {
        verdicts.iter_mut().for_each(|v| v.leave_unchecked(&why));
    }
    if let Some(limit) = limits.growth {
        verdicts.push(maker.growth(measured.growth.as_ref(), limit));
    }
    if let Some(limit) = limits.regression {
        let same = old.iter().find(|m| m.figures.device == now.device);
        let old = same.and_then(|m| m.figures.peaks.as_ref());
        let why = impossible(measured)
            .or_else(|| Some(format!("of the baseline: {}", same.and_then(impossible)?)));
        let pairs = [
            ("regression-reserved", "reserved", reserved, old.map(|p| &p.reserved)),
            ("regression-allocated", "allocated", allocated, old.map(|p| &p.allocated)),
        ];
        for (check, what, now, old) in pairs {
            let mut verdict = maker.regression(check, what, now, old, limit);
            if let Some(why) = &why {
                verdict.leave_unchecked(why);
            }
            verdicts.push(verdict);
        }
    }
    verdicts
}

struct Maker<'a> {
    file: &'a str,
    device: u32,
}

impl Maker<'_> {
    fn verdict(&self, check: &'static str, limit: String, allowed: f64) -> Verdict {
        Verdict {
            file: self.file.to_owned(),
            device: self.device,
            check,
            value: "not known".to_owned(),
            limit,
            measured: None,
            allowed,
            exact: false,
            outcome: Outcome::Unchecked,
            reason: Some("the file has no history, so that the peak is not known".to_owned()),
        }
    }

    fn bytes(&self, check: &'static str, what: &str, peak: Option<&Peak>, limit: u64) -> Verdict {
        let verdict = self.verdict(check, Human(limit).to_string(), limit as f64);
        let Some(peak) = peak else { return verdict };
        let over = peak.bytes.saturating_sub(limit);
        let reason = if over > 0 {
            let bytes = grouped(peak.bytes);
            Some(format!("peak of {what} memory is {bytes} bytes, {} over the limit", Human(over)))
        } else {
            (!peak.exact).then(|| LOWER_BOUND.to_owned())
        };
        Verdict {
            value: Bytes { bytes: peak.bytes, exact: peak.exact }.human(),
            measured: Some(peak.bytes as f64),
            exact: peak.exact,
            outcome: Outcome::of_bound(over == 0, peak.exact),
            reason,
            ..verdict
        }
    }

    fn fragmentation(&self, now: &Figures, limit: Percent) -> Verdict {
        let verdict = self.verdict("fragmentation", format!("{}%", limit.0), limit.0);
        if now.peaks.is_none() {
            return verdict;
        }
        let percent = now.fragmentation.share() * 100.0;
        let report = FragmentationReport::from(now.fragmentation);
        let passed = percent <= limit.0;
        let what = format!(
            "{} of {} reserved bytes were unused when most was reserved",
            grouped(report.unused_bytes),
            grouped(report.reserved_bytes)
        );
        let reason = match (passed, report.exact) {
            (true, _) => None,
            (false, true) => Some(what),
            (false, false) => Some(format!("at most {what}; it may have been less")),
        };
        Verdict {
            value: report.human(),
            measured: Some(report.percent),
            exact: report.exact,
            outcome: Outcome::of(passed),
            reason,
            ..verdict
        }
    }

    fn growth(&self, growth: Option<&DeviceLeaks>, limit: u64) -> Verdict {
        let verdict =
            self.verdict("growth-per-step", format!("{} a step", Human(limit)), limit as f64);
        let Some(growth) = growth else {
            let reason = "the file has no history, so that growth is not known".to_owned();
            return Verdict { reason: Some(reason), ..verdict };
        };
        let steps = growth.steps.ends.len();
        if growth.steps.too_few() {
            let reason = format!(
                "{} found: too few to tell growth from a beginning (--marker NAME says what ends one)",
                counted(steps as u64, "step")
            );
            return Verdict { reason: Some(reason), ..verdict };
        }
        let bytes = growth.leaks.iter().fold(0u64, |sum, l| sum.saturating_add(l.bytes_per_step));
        let passed = bytes <= limit;
        let guessed = matches!(growth.steps.source, StepSource::Period(_));
        let reason = match growth.leaks.first() {
            Some(most) if !passed => Some(format!(
                "memory grows by {} bytes a step over {steps} steps at {}; most at {}",
                grouped(bytes),
                counted(growth.leaks.len() as u64, "place"),
                most.place
            )),
            _ => guessed
                .then(|| "no annotation marks steps: they were told by repetition".to_owned()),
        };
        Verdict {
            value: format!("{} a step", Human(bytes)),
            measured: Some(bytes as f64),
            exact: !guessed,
            outcome: Outcome::of(passed),
            reason,
            ..verdict
        }
    }

    fn regression(
        &self,
        check: &'static str,
        what: &str,
        now: Option<&Peak>,
        old: Option<&Peak>,
        limit: Percent,
    ) -> Verdict {
        let unknown = self.verdict(check, format!("+{}%", limit.0), 0.0);
        let Some(old) = old else {
            let reason = format!("the baseline has no peak of device {}", self.device);
            return Verdict { reason: Some(reason), ..unknown };
        };
        let allowed = old.bytes as f64 * (1.0 + limit.0 / 100.0);
        let limit = format!("{} (+{}%)", Human(allowed as u64), limit.0);
        let Some(now) = now else { return Verdict { limit, allowed, ..unknown } };
        let passed = now.bytes as f64 <= allowed;
        let change = percent_signed(old.bytes, now.bytes);
        let exact = now.exact && old.exact;
        let reason = if passed {
            (!exact).then(|| LOWER_BOUND.to_owned())
        } else {
            let (old, now) = (grouped(old.bytes), grouped(now.bytes));
            Some(format!("peak of {what} memory rose from {old} to {now} bytes"))
        };
        let value = Bytes { bytes: now.bytes, exact: now.exact }.human();
        Verdict {
            value: format!("{value} {}", if change.is_empty() { "new" } else { &change }),
            limit,
            measured: Some(now.bytes as f64),
            allowed,
            exact,
            outcome: Outcome::of_bound(passed, now.exact),
            reason,
            ..unknown
        }
    }
}

const LOWER_BOUND: &str =
    "a lower bound: the recording does not tell the whole, so that it may have been more";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_with_and_without_their_sign() {
        assert_eq!("10%".parse(), Ok(Percent(10.0)));
        assert_eq!(" 2.5 % ".parse(), Ok(Percent(2.5)));
        assert_eq!("0".parse(), Ok(Percent(0.0)));
        for wrong in ["", "-1%", "NaN", "inf", "10GiB", "%"] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_no_more_than_the_whole() {
        assert_eq!(share("100%"), Ok(Percent(100.0)));
        assert!(share("200%").is_err() && share("-1%").is_err());
    }

    fn peak(bytes: u64, exact: bool) -> Peak {
        let when = vramwise_analyze::peak::When {
            event: None,
            since_start_us: None,
            phase: vramwise_analyze::peak::Phase::default(),
        };
        Peak { bytes, exact, when }
    }

    #[test]
    fn a_limit_is_exceeded_only_by_more_than_it() {
        let maker = Maker { file: "a", device: 0 };
        let check = |bytes| maker.bytes("peak-reserved", "reserved", Some(&peak(bytes, true)), 100);
        assert!(check(100).passed() && check(100).reason.is_none());
        assert!(!check(101).passed() && check(101).reason.is_some());
        assert_eq!(maker.bytes("peak-reserved", "reserved", None, 100).outcome, Outcome::Unchecked);
        let bound = maker.bytes("peak-reserved", "reserved", Some(&peak(100, false)), 100);
        assert!(bound.outcome == Outcome::Unchecked && bound.reason.is_some());
        let bound = maker.bytes("peak-reserved", "reserved", Some(&peak(101, false)), 100);
        assert_eq!(bound.outcome, Outcome::Failed);
    }

    #[test]
    fn growth_is_the_sum_of_all_leaks_and_needs_steps() {
        let leak = |bytes_per_step| vramwise_analyze::leaks::Leak {
            place: "train.py:7 step".to_owned(),
            frames: Vec::new(),
            bytes_per_step,
            blocks_per_step: 1.0,
            steps: 8,
            grew: 8,
            bytes: bytes_per_step * 8,
            confidence: 1.0,
            series: Vec::new(),
        };
        let found = |source, steps: usize, leaks| DeviceLeaks {
            some_stacks: None,
            device: 0,
            events: 100,
            steps: vramwise_analyze::leaks::Steps {
                source,
                ends: (1..=steps).collect(),
                outside: 0,
            },
            leaks,
            filled: Vec::new(),
        };
        let annotated = || StepSource::Annotation("step".to_owned());
        let maker = Maker { file: "a", device: 0 };
        let leaking = found(annotated(), 10, vec![leak(60), leak(40)]);
        let at = |limit| maker.growth(Some(&leaking), limit);
        assert!(at(100).passed() && at(100).exact && at(100).measured == Some(100.0));
        assert!(
            !at(99).passed() && at(99).reason.is_some_and(|why| why.contains("train.py:7 step"))
        );
        let clean = found(StepSource::Period("1 MiB".to_owned()), 10, Vec::new());
        let verdict = maker.growth(Some(&clean), 0);
        assert!(verdict.passed() && !verdict.exact && verdict.reason.is_some());
        for blind in [None, Some(found(annotated(), 3, Vec::new()))] {
            let verdict = maker.growth(blind.as_ref(), u64::MAX);
            assert!(
                verdict.outcome == Outcome::Unchecked
                    && verdict.measured.is_none()
                    && verdict.reason.is_some()
            );
        }
    }

    #[test]
    fn a_regression_is_measured_in_percent_of_the_old_peak() {
        let maker = Maker { file: "a", device: 0 };
        let check = |now, old| {
            let (now, old) = (peak(now, true), peak(old, true));
            maker.regression("r", "reserved", Some(&now), Some(&old), Percent(2.0)).passed()
        };
        assert!(check(102, 100) && check(50, 100) && check(0, 0));
        assert!(!check(103, 100) && !check(1, 0));
    }
}

//! The report of `vramwise check --json`; its keys are a promise to scripts.

use serde::Serialize;

use super::gates::{Outcome, Verdict};
use crate::several::Unreadable;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report<'a> {
    schema: u32,
    passed: bool,
    failed_checks: usize,
    checks: Vec<CheckReport<'a>>,
    /// The files that cannot be used; always empty where one was named.
    unreadable: &'a [Unreadable],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckReport<'a> {
    file: &'a str,
    device: u32,
    /// `peak-reserved`, `peak-allocated`, `fragmentation`, `growth-per-step`, `regression-reserved`
    /// or `regression-allocated`.
    check: &'static str,
    passed: bool,
    /// Whether it could be checked; what could not does not pass.
    checked: bool,
    /// Bytes (a step, of growth), or percent of fragmentation; `null` where it is not known.
    measured: Option<f64>,
    /// In the same unit.
    allowed: f64,
    /// Whether the figure is no bound, and (of growth) the steps are no guess.
    exact: bool,
    /// Why it did not pass, or what to know although it did.
    reason: Option<&'a str>,
}

impl<'a> Report<'a> {
    pub(super) fn new(verdicts: &'a [Verdict], unreadable: &'a [Unreadable]) -> Self {
        let check = |v: &'a Verdict| CheckReport {
            file: &v.file,
            device: v.device,
            check: v.check,
            passed: v.passed(),
            checked: v.outcome != Outcome::Unchecked,
            measured: v.measured,
            allowed: v.allowed,
            exact: v.exact,
            reason: v.reason.as_deref(),
        };
        let failed_checks = verdicts.iter().filter(|v| !v.passed()).count();
        let checks = verdicts.iter().map(check).collect();
        let passed = failed_checks == 0 && unreadable.is_empty();
        Self { schema: 1, passed, failed_checks, checks, unreadable }
    }
}

//! The report of `vramwise check --json`; its keys are a promise to scripts.

use serde::Serialize;

use super::gates::Verdict;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report<'a> {
    schema: u32,
    passed: bool,
    failed_checks: usize,
    checks: Vec<CheckReport<'a>>,
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
    pub(super) fn new(verdicts: &'a [Verdict]) -> Self {
        let check = |v: &'a Verdict| CheckReport {
            file: &v.file,
            device: v.device,
            check: v.check,
            passed: v.passed,
            measured: v.measured,
            allowed: v.allowed,
            exact: v.exact,
            reason: v.reason.as_deref(),
        };
        let failed_checks = verdicts.iter().filter(|v| !v.passed).count();
        let checks = verdicts.iter().map(check).collect();
        Self { schema: 1, passed: failed_checks == 0, failed_checks, checks }
    }
}

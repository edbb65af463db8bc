//! What vramwise's own allocator would have held, beside PyTorch's settings.

use std::fmt::Write as _;

use serde::Serialize;
use vramwise_replay::{ANY_CARD, DropInParams, drop_in};
use vramwise_tune::TuneOptions;
use vramwise_types::Human;

use super::Input;
use crate::style::Style;

/// The worst of the files.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DropInReport {
    /// Most physical memory held at one time, bytes.
    peak_held_bytes: u64,
    /// Held ÷ asked for, at their peaks.
    ratio: Option<f64>,
    /// Files whose program runs out of memory.
    oom_runs: usize,
}

impl DropInReport {
    pub(super) fn new(options: &TuneOptions, inputs: &[Input]) -> Self {
        let total = options.total.unwrap_or(ANY_CARD);
        let replay = |input: &Input| {
            let limit = options.capacity.or_else(|| super::recorded_capacity(input));
            let params = DropInParams { limit, ..DropInParams::default() };
            drop_in(&input.recording.program, params, total)
        };
        let outcomes: Vec<_> = inputs.iter().map(replay).collect();
        let worst = outcomes.iter().max_by_key(|o| o.peak_held_bytes);
        Self {
            peak_held_bytes: worst.map_or(0, |o| o.peak_held_bytes),
            ratio: worst.and_then(vramwise_replay::DropIn::ratio),
            oom_runs: outcomes.iter().filter(|o| !o.ooms.is_empty()).count(),
        }
    }
}

pub(super) fn render(text: &mut String, report: &DropInReport, style: Style) {
    let ratio = report.ratio.map_or(String::new(), |r| format!(", {r:.3}× what is asked for"));
    let _ = write!(
        text,
        "  vramwise's allocator     {}{ratio}: another allocator in PyTorch's place (vramwise run)",
        Human(report.peak_held_bytes)
    );
    if report.oom_runs > 0 {
        let _ = write!(text, "; {}", style.bad("out of memory too"));
    }
    text.push('\n');
}

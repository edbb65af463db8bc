//! Memory over time under the recorded and the recommended settings.

use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, NoHistory};
use vramwise_replay::{Conditions, Observer, what_if_observed};
use vramwise_tune::{Candidate, Case, Report, TuneOptions};

use crate::plot::{Line, Plot};

/// Points per line at most; between two of them the highest value counts.
const POINTS: usize = 4000;

/// Collects the bytes held and handed out.
struct Timeline<'a> {
    events: &'a [u32],
    every: usize,
    reserved: Vec<(u64, u64)>,
    allocated: Vec<(u64, u64)>,
    highest: (u64, u64),
}

impl Observer for Timeline<'_> {
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        let allocated = allocator.stats().all(Family::AllocatedBytes).current;
        let now = (allocator.reserved_bytes(), u64::try_from(allocated).unwrap_or(0));
        self.highest = (self.highest.0.max(now.0), self.highest.1.max(now.1));
        if op.is_multiple_of(self.every) {
            let event = u64::from(self.events[op]);
            self.reserved.push((event, self.highest.0));
            self.allocated.push((event, self.highest.1));
            self.highest = (0, 0);
        }
        true
    }
}

/// The picture as SVG.
pub(super) fn svg(case: &Case, report: &Report, options: &TuneOptions) -> String {
    let baseline = &report.candidates[report.baseline];
    let best = &report.candidates[report.recommended];
    let before = timeline(case, baseline, options);
    let mut lines =
        vec![line("allocated", before.allocated), line(&label(baseline), before.reserved)];
    if report.baseline != report.recommended {
        lines.push(line(&label(best), timeline(case, best, options).reserved));
    }
    let limit = options.capacity.map(|bytes| ("capacity".to_owned(), bytes));
    Plot {
        title: format!("GPU memory over time: {}", case.name),
        x_label: "event of the history".to_owned(),
        lines,
        limit,
    }
    .to_svg()
}

fn label(candidate: &Candidate) -> String {
    let conf = if candidate.conf.is_empty() { "PyTorch's defaults" } else { &candidate.conf };
    format!("reserved, {conf}")
}

fn line(label: &str, points: Vec<(u64, u64)>) -> Line {
    Line { label: label.to_owned(), points }
}

fn timeline<'a>(case: &'a Case, candidate: &Candidate, options: &TuneOptions) -> Timeline<'a> {
    let mut timeline = Timeline {
        events: &case.program.events,
        every: (case.program.ops.len() / POINTS).max(1),
        reserved: Vec::new(),
        allocated: Vec::new(),
        highest: (0, 0),
    };
    let conditions = Conditions {
        limit: options.capacity,
        total: options.total,
        ..Conditions::new(candidate.config.clone(), options.version)
    };
    what_if_observed(&case.program, &case.calls, &conditions, &mut timeline, &mut NoHistory);
    timeline
}

//! Further draws of what cannot be known: the program again, with other assumptions, for the range of its peaks.

use serde::Serialize;
use vramwise_rehearse::assume::{DRAWS, Draw, EXTREMES};
use vramwise_rehearse::{Rehearsal, Streams, Verdict};

use super::Run;
use crate::context::Context;
use crate::failure::Failure;
use crate::style::Style;
use crate::text::grouped;

/// What the program took under one set of assumptions.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Drawn {
    /// How indices were chosen: `uniform`, `balanced`, `skewed` or `worst`.
    topk: String,
    /// Share of masks that was true.
    mask: f64,
    /// Share of boxes that non-maximum suppression kept.
    nms: f64,
    /// Share of values that differed from all others.
    unique: f64,
    exit_status: u8,
    /// Null where the program failed by itself.
    fits: Option<bool>,
    pub(super) peak_allocated_bytes: u64,
    pub(super) peak_reserved_bytes: u64,
    pub(super) peak_device_bytes: u64,
    /// Lowest and highest, other addresses included.
    #[serde(skip)]
    allocated: (u64, u64),
    #[serde(skip)]
    reserved: (u64, u64),
}

/// All draws, the first among them.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Draws {
    /// Lowest and highest peak over all draws, each under several orders of addresses.
    pub(super) peak_allocated_bytes_range: (u64, u64),
    pub(super) peak_reserved_bytes_range: (u64, u64),
    pub(super) peak_device_bytes_range: (u64, u64),
    /// Whether the program fits under each of them.
    pub(super) all_fit: bool,
    pub(super) runs: Vec<Drawn>,
}

/// How many draws are to be made: as many as are asked for, or the usual number; one where nothing was assumed or
/// the program did not run to a verdict.
fn count(asked: Option<u32>, run: &Run) -> u32 {
    let assumed = run.outcome.reads.as_ref().is_some_and(|reads| reads.assumed > 0);
    if !assumed || run.outcome.verdict == Verdict::Unknown || run.outcome.ended.interrupted() {
        return 1;
    }
    asked.unwrap_or(DRAWS)
}

/// Makes the draws behind the first, which `run` is.
pub(super) fn more(
    asked: Option<u32>,
    rehearsal: &Rehearsal,
    run: &Run,
    context: &Context,
) -> Result<Option<Draws>, Failure> {
    let count = count(asked, run);
    if count < 2 {
        return Ok(None);
    }
    context.note(&format!("values had to be assumed: {} further draws", count - 1));
    let progress = context.progress("drawing values", u64::from(count));
    let mut runs = vec![Drawn::new(rehearsal.assume.draw(0, count), run)];
    for number in 1..count {
        progress.set(u64::from(number));
        let mut other = rehearsal.clone();
        other.draw = (number, count);
        other.streams = Streams::Hidden;
        other.directory = Some(run.outcome.directory.join(format!("draw-{number}")));
        let run = Run::new(&other, context)?;
        if run.outcome.ended.interrupted() {
            run.outcome.discard();
            break;
        }
        runs.push(Drawn::new(other.assume.draw(number, count), &run));
        if rehearsal.directory.is_none() {
            run.outcome.discard();
        }
        // What neither extreme changes nothing between them does.
        let settled = asked.is_none() && number + 1 == EXTREMES;
        if settled && runs.iter().all(|run| run.is_like(&runs[0])) {
            break;
        }
    }
    Ok(Some(Draws::new(runs)))
}

impl Drawn {
    fn new(draw: Draw, run: &Run) -> Self {
        let worst = run.outcome.worst();
        let index = run.outcome.devices.iter().position(|device| *device == worst).unwrap_or(0);
        let evidence = run.evidence.iter().find(|evidence| evidence.device as usize == index);
        let ranges = evidence.and_then(|evidence| evidence.ranges);
        let verdict = run.outcome.verdict;
        Self {
            topk: draw.topk.name().to_owned(),
            mask: draw.mask,
            nms: draw.nms,
            unique: draw.unique,
            exit_status: run.outcome.ended.status,
            fits: (verdict != Verdict::Unknown).then_some(verdict == Verdict::Fits),
            peak_allocated_bytes: worst.allocated,
            peak_reserved_bytes: worst.reserved,
            peak_device_bytes: worst.device,
            allocated: ranges.map_or((worst.allocated, worst.allocated), |r| r.allocated),
            reserved: ranges.map_or((worst.reserved, worst.reserved), |r| r.reserved),
        }
    }

    /// Whether it ended in the same way with the same peaks.
    fn is_like(&self, other: &Self) -> bool {
        let figures = |run: &Self| (run.fits, run.allocated, run.reserved, run.peak_device_bytes);
        figures(self) == figures(other)
    }

    fn assumed(&self) -> String {
        let Self { topk, mask, nms, unique, .. } = self;
        format!("topk={topk},mask={mask:.2},nms={nms:.2},unique={unique:.2}")
    }
}

impl Draws {
    fn new(runs: Vec<Drawn>) -> Self {
        let range = |low: fn(&Drawn) -> u64, high: fn(&Drawn) -> u64| {
            let low = runs.iter().map(low).min().unwrap_or(0);
            (low, runs.iter().map(high).max().unwrap_or(0))
        };
        Self {
            peak_allocated_bytes_range: range(|run| run.allocated.0, |run| run.allocated.1),
            peak_reserved_bytes_range: range(|run| run.reserved.0, |run| run.reserved.1),
            peak_device_bytes_range: range(|r| r.peak_device_bytes, |r| r.peak_device_bytes),
            all_fit: runs.iter().all(|run| run.fits == Some(true)),
            runs,
        }
    }

    /// Whether the program fits under each that it does not fail under by itself.
    pub(super) fn fits(&self) -> bool {
        self.runs.iter().all(|run| run.fits != Some(false))
    }

    /// The highest of a figure.
    pub(super) fn highest(&self, figure: fn(&Drawn) -> u64) -> u64 {
        self.runs.iter().map(figure).max().unwrap_or(0)
    }

    /// What the draws say of how sure the figures are.
    pub(super) fn doubt(&self) -> String {
        let (low, high) = self.peak_reserved_bytes_range;
        let by = |(low, high): (u64, u64)| format!("{} to {}", grouped(low), grouped(high));
        if low == high && self.peak_allocated_bytes_range.0 == self.peak_allocated_bytes_range.1 {
            return format!("over {} draws of such values no peak changes", self.runs.len());
        }
        format!(
            "over {} draws of such values the peak of allocated memory is {} bytes, that of reserved memory {}; \
             --assume says what you know of them",
            self.runs.len(),
            by(self.peak_allocated_bytes_range),
            by(self.peak_reserved_bytes_range),
        )
    }

    /// A line for each draw that ends otherwise than the first.
    pub(super) fn exceptions(&self, style: Style) -> String {
        let first = self.runs.first().and_then(|run| run.fits);
        let mut text = String::new();
        for run in self.runs.iter().skip(1).filter(|run| run.fits != first) {
            let how = match run.fits {
                Some(true) => style.good("fits"),
                Some(false) => style.bad("does not fit"),
                None => style.warn("fails"),
            };
            text.push_str(&format!("{how} with {}\n", run.assumed()));
        }
        text
    }
}

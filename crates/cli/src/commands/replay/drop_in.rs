//! `vramwise replay --allocator vramwise`: the same program under the drop-in allocator.

use std::fmt::Write as _;

use serde::Serialize;
use vramwise_replay::{ANY_CARD, DropIn, DropInParams, Recording};
use vramwise_types::Human;

use super::json::Report;
use super::request::Request;
use crate::style::Style;
use crate::text::{counted, grouped};

/// What it would have held.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DropInReport {
    /// Most physical memory held at one time, bytes.
    peak_held_bytes: u64,
    /// Most memory asked for at one time, bytes: what any allocator needs.
    peak_requested_bytes: u64,
    /// Held ÷ requested.
    ratio: Option<f64>,
    /// The peaks of private pools added up, bytes.
    private_peaks_bytes: u64,
    /// Requests without memory.
    oom: Vec<DropInOom>,
    device_calls: DropInCalls,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DropInOom {
    event: usize,
    size_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DropInCalls {
    create: u64,
    release: u64,
    map: u64,
    unmap: u64,
}

impl DropInReport {
    pub(super) fn new(drop_in: &DropIn) -> Self {
        let calls = drop_in.calls;
        Self {
            peak_held_bytes: drop_in.peak_held_bytes,
            peak_requested_bytes: drop_in.peak_requested_bytes,
            ratio: drop_in.ratio(),
            private_peaks_bytes: drop_in.private_peaks_bytes,
            oom: drop_in
                .ooms
                .iter()
                .map(|(event, size)| DropInOom { event: *event, size_bytes: *size })
                .collect(),
            device_calls: DropInCalls {
                create: calls.create,
                release: calls.release,
                map: calls.map,
                unmap: calls.unmap,
            },
        }
    }
}

pub(super) fn replay(
    request: &Request,
    recording: &Recording,
    assumptions: &mut Vec<String>,
) -> DropIn {
    let limit = request.capacity.or(recording.limit);
    assumptions.push(
        "under vramwise's allocator, kernels are taken to be done when the recording says that their memory is free"
            .to_owned(),
    );
    let params = DropInParams { limit, ..DropInParams::default() };
    vramwise_replay::drop_in(&recording.program, params, request.total.unwrap_or(ANY_CARD))
}

pub(super) fn render(text: &mut String, drop_in: &DropInReport, report: &Report, style: Style) {
    let _ = writeln!(
        text,
        "\n{}",
        style.bold("the same program under vramwise's allocator (vramwise run)")
    );
    let held = drop_in.peak_held_bytes;
    let _ = writeln!(
        text,
        "  {:<18} {:>10}  {:>16} bytes",
        "peak held",
        Human(held).to_string(),
        grouped(held)
    );
    let needed = drop_in.peak_requested_bytes;
    let _ = writeln!(
        text,
        "  {:<18} {:>10}  {:>16} bytes",
        "peak asked for",
        Human(needed).to_string(),
        grouped(needed)
    );
    if let Some(ratio) = drop_in.ratio {
        let pytorch = report.stats.get("reserved_bytes.all.peak").copied().unwrap_or(0) as f64;
        let theirs = pytorch / needed as f64;
        let _ = writeln!(
            text,
            "  {:<18} {ratio:>10.3}  (PyTorch's, as above: {theirs:.3})",
            "held / asked for"
        );
    }
    if drop_in.private_peaks_bytes > 0 {
        let _ = writeln!(
            text,
            "  {:<18} {:>10}  of private pools, whose memory can't be lent",
            "peaks",
            Human(drop_in.private_peaks_bytes).to_string()
        );
    }
    let calls = &drop_in.device_calls;
    let total = calls.create + calls.release + calls.map + calls.unmap;
    let _ = writeln!(text, "  {:<18} {:>10}", "driver calls", grouped(total));
    if let Some(first) = drop_in.oom.first() {
        let times = counted(drop_in.oom.len() as u64, "request");
        let _ = writeln!(
            text,
            "  {:<18} {}, first at event {}: {}",
            "out of memory",
            style.bad(&times),
            grouped(first.event as u64),
            Human(first.size_bytes)
        );
    }
}

//! The report of `vramwise replay` for people.

use std::fmt::Write as _;

use vramwise_types::Human;

use super::json::{Report, Verify};
use super::request::Answer;
use crate::context::Context;
use crate::style::Style;
use crate::text::{counted, grouped, printable};

/// Said of a recording that another allocator's blocks are in.
const NOT_COMPARED: &str = "recorded under vramwise's allocator: its blocks are not compared";

pub(super) fn render(report: &Report, answer: &Answer, context: &Context) -> String {
    let style = context.style();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}  device {}, {}, PyTorch {}",
        style.bold(&printable(&report.file)),
        report.device,
        counted(report.events as u64, "event"),
        report.torch_version
    );
    let named = |conf: &str| {
        if conf.is_empty() { "PyTorch's defaults".to_owned() } else { conf.to_owned() }
    };
    let _ = writeln!(text, "recorded under  {}", named(&report.settings.recorded));
    if answer.what_if.is_some() {
        let _ = writeln!(text, "replayed under  {}", named(&report.settings.replayed));
    }
    if let Some(bytes) = report.capacity_bytes {
        let _ = writeln!(text, "capacity        {} ({} bytes)", Human(bytes), grouped(bytes));
    }
    text.push('\n');
    match &report.verify {
        Some(verify) => verification(&mut text, verify, style),
        None => what_if(&mut text, report, answer, style),
    }
    peaks(&mut text, report, style);
    if let Some(drop_in) = &report.drop_in {
        super::drop_in::render(&mut text, drop_in, report, style);
    }
    notes(&mut text, report, style);
    text
}

fn verification(text: &mut String, verify: &Verify, style: Style) {
    let rows = [
        ("addresses", verify.allocs_exact, verify.allocs),
        ("segments taken", verify.segment_allocs_exact, verify.segment_allocs),
        ("segments returned", verify.segment_frees_exact, verify.segment_frees),
        ("maps", verify.segment_maps_exact, verify.segment_maps),
        ("unmaps", verify.segment_unmaps_exact, verify.segment_unmaps),
        ("out of memory", verify.ooms_exact, verify.ooms),
    ];
    let mut all = verify.final_state_exact && verify.first_divergence.is_none();
    for (what, exact, recorded) in rows.iter().filter(|(_, _, recorded)| *recorded > 0) {
        all &= exact == recorded;
        let figures = format!("{}/{} exact", grouped(*exact), grouped(*recorded));
        let painted = if exact == recorded { style.good(&figures) } else { style.bad(&figures) };
        let _ = writeln!(text, "  {what:<18} {painted}");
    }
    match &verify.final_state_difference {
        None => {
            let _ = writeln!(text, "  {:<18} {}", "final state", style.good("exact"));
        }
        Some(difference) => {
            let _ = writeln!(text, "  {:<18} {}", "final state", style.bad(difference));
        }
    }
    if let Some(why) = &verify.impossible {
        let _ = writeln!(
            text,
            "\n{} {}",
            style.bad("no history of PyTorch's allocator:"),
            printable(why)
        );
    }
    if let Some(d) = &verify.first_divergence {
        let _ = writeln!(
            text,
            "\n{} at event {}",
            style.bad("first divergence"),
            grouped(d.event as u64)
        );
        let _ = writeln!(text, "  recording  {}", d.expected);
        let _ = writeln!(text, "  model      {}", d.got);
        let _ = writeln!(text, "  meaning    {}", d.why);
        for line in &d.context {
            let _ = writeln!(text, "             {line}");
        }
    } else if all && verify.impossible.is_none() {
        let verdict = "The model reproduces this recording to the byte.";
        let _ = writeln!(text, "\n{}", style.good(verdict));
    }
    text.push('\n');
}

fn what_if(text: &mut String, report: &Report, answer: &Answer, style: Style) {
    let recording = &answer.recording;
    let allocs = recording.agreement.allocs;
    let proved = format!(
        "{}/{} recorded addresses reproduced before",
        grouped(allocs.exact),
        grouped(allocs.recorded)
    );
    let painted = if recording.is_exact() { style.good(&proved) } else { style.bad(&proved) };
    let painted = match (&recording.first_divergence, recording.requests_only) {
        (Some(d), true) => style.bad(&format!(
            "its requests make no sense from event {} on: {}, {}",
            grouped(d.event as u64),
            d.expected,
            d.got
        )),
        (None, true) => style.warn(NOT_COMPARED),
        _ => painted,
    };
    let _ = writeln!(text, "  {:<18} {painted}", "model");
    if report.oom.is_empty() {
        let _ = writeln!(text, "  {:<18} {}", "out of memory", style.good("never"));
    } else {
        let times = counted(report.oom.len() as u64, "request");
        let first = &report.oom[0];
        let _ = writeln!(
            text,
            "  {:<18} {}, first at event {}: {} asked of the device, {} held",
            "out of memory",
            style.bad(&times),
            grouped(first.event as u64),
            Human(first.device_request_bytes.unwrap_or(first.size_bytes)),
            Human(first.reserved_bytes.unwrap_or(0)),
        );
    }
    text.push('\n');
}

fn peaks(text: &mut String, report: &Report, style: Style) {
    let value = |key: &str| report.stats.get(key).copied().unwrap_or(0);
    let bytes = |key: &str| u64::try_from(value(key)).unwrap_or(0);
    let _ = writeln!(text, "{}", style.bold("peaks"));
    for (what, key) in [
        ("reserved", "reserved_bytes.all.peak"),
        ("allocated", "allocated_bytes.all.peak"),
        ("requested", "requested_bytes.all.peak"),
    ] {
        let n = bytes(key);
        let _ = writeln!(text, "  {what:<18} {:>12}  {:>18} bytes", Human(n), grouped(n));
    }
    let (low, high) = report.peak_reserved_bytes_range;
    if low != high {
        let human = |n: i64| Human(u64::try_from(n).unwrap_or(0));
        let _ = writeln!(
            text,
            "  {:<18} {} to {}, by the order of the driver's addresses",
            "reserved, range",
            human(low),
            human(high)
        );
    }
    let calls = &report.device_calls;
    let _ = writeln!(
        text,
        "  {:<18} {} cudaMalloc, {} cudaFree, {} maps, {} unmaps, {} retries",
        "device calls",
        calls.malloc,
        calls.free,
        calls.map,
        calls.unmap,
        value("num_alloc_retries")
    );
}

fn notes(text: &mut String, report: &Report, style: Style) {
    for (title, lines) in [("assumptions", &report.assumptions), ("warnings", &report.warnings)] {
        if lines.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}", style.bold(title));
        for line in lines {
            let _ = writeln!(text, "  - {}", printable(line));
        }
    }
}

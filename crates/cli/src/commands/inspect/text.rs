//! The report of `vramwise inspect` for people.

use std::fmt::Write as _;

use vramwise_types::Human;

use super::json::{Device, FreeReport, MemoryReport, PeakReport, PinnedReport, Report, WhenReport};
use crate::context::Context;
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{counted, grouped, printable};

pub(super) fn render(report: &Report, context: &Context) -> String {
    let style = context.style();
    let mut text = String::new();
    for device in &report.devices {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{}  device {}, {}, PyTorch {}",
            style.bold(&printable(&report.file)),
            device.device,
            counted(device.events as u64, "event"),
            report.torch_version
        );
        evidence(&mut text, device, style);
        peaks(&mut text, device, context);
        timeline(&mut text, device, style);
        holders(&mut text, device, context);
        categories(&mut text, &device.memory, context);
        if let Some(free) = &device.memory.free {
            pools(&mut text, free, context);
        }
        // A few free bytes are nothing to act on.
        let reserved = device.memory.reserved_bytes;
        let matters = |p: &&PinnedReport| p.free_bytes > reserved / 1000;
        for pinned in device.pinned.iter().filter(matters) {
            pins(&mut text, pinned, device.has_stacks, style);
        }
        list(&mut text, "assumptions", device.assumptions.iter().map(String::as_str), style);
    }
    let warnings = report.warnings.iter().map(|w| w.message.as_str());
    list(&mut text, "warnings", warnings, style);
    text
}

fn list<'a>(text: &mut String, title: &str, lines: impl Iterator<Item = &'a str>, style: Style) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{}", style.bold(title));
    }
    for line in lines {
        let _ = writeln!(text, "  - {}", printable(line));
    }
}

fn evidence(text: &mut String, device: &Device, style: Style) {
    let sentence = match (device.evidence, &device.evidence_reason) {
        ("replay", _) => style.good(
            "A replay reproduces this recording to the byte: the figures are those of PyTorch's \
             counters.",
        ),
        ("history", Some(why)) => style.warn(&format!(
            "Told from the history alone, since {}. Figures with ≥ are lower bounds.",
            printable(why)
        )),
        _ => style.warn("There is no history: only the moment of the snapshot is known."),
    };
    let _ = writeln!(text, "{sentence}");
    if let Some(sampled) = &device.sampled_stacks {
        let _ = writeln!(text, "{}", style.warn(&format!("Stacks: {}.", sampled.note)));
    }
    text.push('\n');
}

fn peaks(text: &mut String, device: &Device, context: &Context) {
    let style = context.style();
    if let Some(peaks) = &device.peaks {
        let mut table = Table::new([
            Column::left("peaks"),
            Column::right(""),
            Column::right("bytes"),
            Column::right("event"),
            Column::right("time"),
            Column::wrapped("phase"),
        ]);
        let mut row = |name: &str, peak: &PeakReport| {
            table.row([
                format!("  {name}").into(),
                bound(peak.bytes, peak.exact).into(),
                grouped(peak.bytes).into(),
                peak.when.event.map_or(String::new(), |e| grouped(e as u64)).into(),
                time(&peak.when).into(),
                phase(&peak.when).into(),
            ]);
        };
        row("reserved", &peaks.reserved);
        row("active", &peaks.active);
        row("allocated", &peaks.allocated);
        row("requested", &peaks.requested);
        text.push_str(&table.render(style, context.width()));
        if let Some(why) = &peaks.impossible {
            let _ = writeln!(text, "  {}", style.bad(&printable(why)));
        }
    }
    if let Some(first) = device.oom.first() {
        let _ = writeln!(
            text,
            "\n{} {}, first at event {} ({} asked; --at {} shows it)",
            style.bad("out of memory:"),
            counted(device.oom.len() as u64, "request"),
            grouped(first.event as u64),
            Human(first.size_bytes),
            first.event
        );
    }
}

/// A size, marked where it is a lower bound.
fn bound(bytes: u64, exact: bool) -> String {
    if exact { Human(bytes).to_string() } else { format!("≥ {}", Human(bytes)) }
}

fn time(when: &WhenReport) -> String {
    when.since_start_us.map_or(String::new(), |us| format!("{:.3} s", us as f64 / 1e6))
}

fn phase(when: &WhenReport) -> String {
    if !when.within.is_empty() {
        return format!("in {}", when.within.join(" > "));
    }
    match &when.after {
        Some(after) => format!("after {} (no. {})", after.name, after.times),
        None => String::new(),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn timeline(text: &mut String, device: &Device, style: Style) {
    let top = device.timeline.iter().map(|c| c.reserved_bytes.max(c.allocated_bytes)).max();
    let Some(top) = top.filter(|top| *top > 0) else { return };
    let _ = writeln!(text, "\n{}", style.bold("over the events (highest in each column)"));
    let mut line = |name: &str, values: Vec<u64>| {
        let (low, high) = (values.iter().min(), values.iter().max());
        let bars: String = values.iter().map(|v| bar(*v, top)).collect();
        let human = |n: Option<&u64>| Human(n.copied().unwrap_or(0));
        let _ = writeln!(text, "  {name:<9}  {bars}  {} to {}", human(low), human(high));
    };
    line("reserved", device.timeline.iter().map(|c| c.reserved_bytes).collect());
    line("allocated", device.timeline.iter().map(|c| c.allocated_bytes).collect());
}

/// The bar for a value: nothing only for 0.
fn bar(value: u64, top: u64) -> char {
    if value == 0 {
        return ' ';
    }
    let eighths = (u128::from(value) * 8).div_ceil(u128::from(top.max(1)));
    BARS[usize::try_from(eighths.clamp(1, 8)).unwrap_or(8) - 1]
}

fn moment(at: &str, when: &WhenReport) -> String {
    let name = match at {
        "peak" => "at the peak of allocated memory",
        "end" => return "at the end".to_owned(),
        "out of memory" => "when memory ran out",
        _ => "after",
    };
    let mut text = name.to_owned();
    if let Some(event) = when.event {
        let _ = match at {
            "event" => write!(text, " event {}", grouped(event as u64)),
            _ => write!(text, " (event {})", grouped(event as u64)),
        };
    }
    text
}

fn holders(text: &mut String, device: &Device, context: &Context) {
    let memory = &device.memory;
    let style = context.style();
    let _ = writeln!(text, "\n{}", style.bold(&moment(memory.at, &memory.when)));
    let (size, exact) = (Human, memory.exact);
    let _ = writeln!(
        text,
        "  {} reserved, {} allocated in {}, {} lost to rounding",
        size(memory.reserved_bytes),
        bound(memory.allocated_bytes, exact),
        counted(memory.allocated_blocks, "block"),
        bound(memory.rounding_bytes, exact),
    );
    if let Some(free) = &memory.free {
        let _ = writeln!(
            text,
            "  free: {} in segments in use, {} in unused segments, largest block {}",
            size(free.split_bytes),
            size(free.cached_bytes),
            size(free.largest_block_bytes)
        );
    }
    amounts(text, memory, device.has_stacks);
    if memory.groups.is_empty() {
        return;
    }
    text.push('\n');
    let mut table = Table::new([
        Column::right("allocated"),
        Column::right("share"),
        Column::right("blocks"),
        Column::wrapped(match memory.by {
            "stack" => "held by",
            other => other,
        }),
    ]);
    for group in &memory.groups {
        table.row([
            size(group.bytes).to_string().into(),
            format!("{:.1}%", group.percent).into(),
            grouped(group.blocks).into(),
            group.name.as_str().into(),
        ]);
    }
    text.push_str(&table.render(style, context.width()));
    if !device.has_stacks && matches!(memory.by, "stack" | "module") {
        let hint = "no stacks were recorded; --by size and --by pool need none";
        let _ = writeln!(text, "{}", style.dim(hint));
    }
    let shown = memory.groups.len();
    if memory.groups_total > shown {
        let sum: u64 = memory.groups.iter().map(|g| g.bytes).sum();
        let more = format!(
            "and {} more with {} (--top N shows more)",
            grouped((memory.groups_total - shown) as u64),
            size(memory.allocated_bytes.saturating_sub(sum))
        );
        let _ = writeln!(text, "{}", style.dim(&more));
    }
}

/// What the memory is for, where any of it could be inferred and no other table says it.
fn categories(text: &mut String, memory: &MemoryReport, context: &Context) {
    let known = memory.categories.iter().any(|c| c.category != "unknown");
    if !known || memory.by == "category" {
        return;
    }
    let (style, verbose) = (context.style(), context.global.verbose > 0);
    text.push('\n');
    let mut table = Table::new([
        Column::right("allocated"),
        Column::right("share"),
        Column::right("blocks"),
        Column::wrapped("inferred category"),
    ]);
    for share in &memory.categories {
        table.row([
            Human(share.bytes).to_string().into(),
            format!("{:.1}%", share.percent).into(),
            grouped(share.blocks).into(),
            share.category.as_str().into(),
        ]);
        for rule in share.rules.iter().filter(|_| verbose) {
            table.row([
                Human(rule.bytes).to_string().into(),
                "".into(),
                grouped(rule.blocks).into(),
                format!("  - {}", rule.rule).into(),
            ]);
        }
    }
    text.push_str(&table.render(style, context.width()));
}

/// Parts of the memory that need a word of their own.
fn amounts(text: &mut String, memory: &MemoryReport, has_stacks: bool) {
    let rows = [
        (
            memory.pending_free_bytes,
            memory.pending_free_blocks,
            "given back, but other streams may still use them (record_stream)",
        ),
        (
            memory.before_recording_bytes,
            memory.before_recording_blocks,
            "allocated before the recording began",
        ),
        (memory.without_stack_bytes, memory.without_stack_blocks, "allocated without a stack"),
    ];
    for (i, (bytes, blocks, what)) in rows.iter().enumerate() {
        // Where no stack was recorded at all, the table of stacks says so.
        if *blocks > 0 && (i != 2 || has_stacks) {
            let blocks = counted(*blocks, "block");
            let _ = writeln!(text, "  {} in {blocks} {what}", Human(*bytes));
        }
    }
    if let Some(free) = memory.free.as_ref().filter(|free| free.private_pool_bytes > 0) {
        let _ = writeln!(text, "  {} reserved in private pools", Human(free.private_pool_bytes));
    }
}

fn pools(text: &mut String, free: &FreeReport, context: &Context) {
    if free.pools.is_empty() {
        return;
    }
    text.push('\n');
    let mut table = Table::new([
        Column::wrapped("pool"),
        Column::left("stream"),
        Column::right("segments"),
        Column::right("reserved"),
        Column::right("allocated"),
        Column::right("free, in use"),
        Column::right("free, unused"),
        Column::right("largest free"),
    ]);
    for pool in &free.pools {
        let half = if pool.small { "small" } else { "large" };
        let name = match pool.pool_id {
            (0, 0) => half.to_owned(),
            (a, b) => format!("private ({a}, {b}), {half}"),
        };
        table.row([
            name.into(),
            if pool.stream == 0 { "default".into() } else { format!("{:#x}", pool.stream).into() },
            grouped(pool.segments).into(),
            Human(pool.reserved_bytes).to_string().into(),
            Human(pool.allocated_bytes).to_string().into(),
            Human(pool.split_bytes).to_string().into(),
            Human(pool.cached_bytes).to_string().into(),
            Human(pool.largest_block_bytes).to_string().into(),
        ]);
    }
    text.push_str(&table.render(context.style(), context.width()));
}

fn pins(text: &mut String, pinned: &PinnedReport, has_stacks: bool, style: Style) {
    let title = format!("segments at least half free {}", moment(pinned.at, &pinned.when));
    let _ = writeln!(text, "\n{}", style.bold(&title));
    for pin in &pinned.pins {
        let _ = write!(
            text,
            "  {} in {} is held by {} in {}",
            Human(pin.segment_bytes),
            counted(pin.segments, "segment"),
            Human(pin.held_bytes),
            counted(pin.blocks, "block")
        );
        if has_stacks {
            let _ = write!(text, " allocated at {}", printable(&pin.name));
        }
        if pin.held_by_others_bytes > 0 {
            let _ = write!(text, " ({} of it elsewhere)", Human(pin.held_by_others_bytes));
        }
        text.push('\n');
    }
    let more = pinned.pins_total.saturating_sub(pinned.pins.len());
    if more > 0 {
        let _ = writeln!(text, "  {}", style.dim(&format!("and {more} more (--top N)")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_empty_only_for_nothing_and_full_only_near_the_top() {
        let bars: String = [0, 1, 12, 13, 50, 87, 88, 100].map(|v| bar(v, 100)).iter().collect();
        assert_eq!(bars, " ▁▁▂▄▇██");
        assert_eq!(bar(u64::MAX, u64::MAX), '█');
    }
}

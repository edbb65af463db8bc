//! The report of `vramwise diff` for people.

use std::fmt::Write as _;

use vramwise_types::Human;

use super::json::{DeviceReport, FileReport, Report, RowReport, SideReport};
use crate::context::Context;
use crate::figures::{Bytes, percent_signed, signed};
use crate::style::{Paint, Style};
use crate::table::{Cell, Column, Table};
use crate::text::{counted, grouped, printable};

pub(super) fn render(report: &Report, context: &Context) -> String {
    let style = context.style();
    let mut text = String::new();
    for (name, file) in [("A", &report.a), ("B", &report.b)] {
        let _ = writeln!(
            text,
            "{} {}  PyTorch {}, {}",
            style.bold(name),
            printable(&file.file),
            file.torch_version,
            settings(file)
        );
    }
    if report.a.settings != report.b.settings {
        let _ = writeln!(text, "{}", style.warn("the settings differ"));
    }
    for device in &report.devices {
        let _ = writeln!(text, "\n{}", style.bold(&format!("device {}", device.device)));
        match (&device.a, &device.b) {
            (Some(a), Some(b)) => {
                evidence(&mut text, [a, b], style);
                figures(&mut text, [a, b], context);
                holders(&mut text, device, report.by, context);
            }
            (Some(_), None) => text.push_str("  only A has it\n"),
            _ => text.push_str("  only B has it\n"),
        }
    }
    text
}

fn settings(file: &FileReport) -> String {
    match file.settings.as_deref() {
        None => "settings not recorded".to_owned(),
        Some("") => "PyTorch's default settings".to_owned(),
        Some(conf) => printable(conf).into_owned(),
    }
}

fn evidence(text: &mut String, sides: [&SideReport; 2], style: Style) {
    for (name, side) in ["A", "B"].into_iter().zip(sides) {
        if let Some(sampled) = &side.sampled_stacks {
            let note = format!("stacks in {name}: {}", sampled.note);
            let _ = writeln!(text, "  {}", style.warn(&note));
        }
        let what = match (&side.evidence_reason, side.evidence) {
            (Some(why), _) => format!("{name} is told from its history alone, since {why}"),
            (None, "state") => format!("{name} has no history: its state at the end is compared"),
            _ => continue,
        };
        let _ = writeln!(text, "  {}", style.warn(&printable(&what)));
    }
}

fn figures(text: &mut String, [a, b]: [&SideReport; 2], context: &Context) {
    let mut table = Table::new([
        Column::left(""),
        Column::right("A"),
        Column::right("B"),
        Column::right("change"),
        Column::right(""),
    ]);
    let mut row = |name: &str, a: Bytes, b: Bytes| {
        let delta = i128::from(b.bytes) - i128::from(a.bytes);
        table.row([
            format!("  {name}").into(),
            a.human().into(),
            b.human().into(),
            change(delta),
            percent_signed(a.bytes, b.bytes).into(),
        ]);
    };
    if let (Some(a), Some(b)) = (&a.peaks, &b.peaks) {
        row("peak reserved", a.reserved, b.reserved);
        row("peak active", a.active, b.active);
        row("peak allocated", a.allocated, b.allocated);
        row("peak requested", a.requested, b.requested);
    }
    let exact = |bytes| Bytes { bytes, exact: true };
    row("rounding at the peak", exact(a.rounding_bytes), exact(b.rounding_bytes));
    row(
        "unused at most reserved",
        exact(a.fragmentation.unused_bytes),
        exact(b.fragmentation.unused_bytes),
    );
    let points = b.fragmentation.percent - a.fragmentation.percent;
    table.row([
        "  fragmentation".into(),
        a.fragmentation.human().into(),
        b.fragmentation.human().into(),
        format!("{points:+.1} points").into(),
    ]);
    if a.oom + b.oom > 0 {
        table.row([
            "  failed requests".into(),
            grouped(a.oom as u64).into(),
            grouped(b.oom as u64).into(),
        ]);
    }
    text.push_str(&table.render(context.style(), context.width()));
}

fn change(delta: i128) -> Cell {
    let text = signed(delta);
    match delta {
        0 => text.into(),
        1.. => Cell::painted(text, Paint::Bad),
        _ => Cell::painted(text, Paint::Good),
    }
}

fn holders(text: &mut String, device: &DeviceReport, by: &str, context: &Context) {
    let style = context.style();
    let title = format!("who holds more or less at the peak of allocated memory, by {by}");
    let _ = writeln!(text, "\n  {}", style.bold(&title));
    let mut table = Table::new([
        Column::right("change"),
        Column::right("A"),
        Column::right("B"),
        Column::left(""),
        Column::wrapped(if by == "stack" { "held by" } else { by }),
    ]);
    for group in &device.groups {
        table.row([
            change(i128::from(group.delta_bytes)),
            Human(group.a_bytes).to_string().into(),
            Human(group.b_bytes).to_string().into(),
            mark(group).into(),
            group.name.as_str().into(),
        ]);
    }
    if !device.groups.is_empty() {
        text.push_str(&table.render(style, context.width()));
    }
    let sum = format!(
        "{}: {} new, {} vanished, {} unchanged",
        counted(device.groups_total as u64, "group"),
        grouped(device.groups_new as u64),
        grouped(device.groups_vanished as u64),
        grouped(device.groups_unchanged as u64)
    );
    let _ = writeln!(text, "  {}", style.dim(&sum));
    let changed = device.groups_total - device.groups_unchanged;
    if changed > device.groups.len() {
        let more = format!(
            "and {} more with {} in all (--top N shows more)",
            grouped((changed - device.groups.len()) as u64),
            signed(i128::from(device.rest_delta_bytes))
        );
        let _ = writeln!(text, "  {}", style.dim(&more));
    }
    let no_stacks = [&device.a, &device.b].into_iter().flatten().any(|s| !s.has_stacks);
    if no_stacks && matches!(by, "stack" | "module") {
        let hint = "not both files have stacks; --by size and --by pool need none";
        let _ = writeln!(text, "  {}", style.dim(hint));
    }
}

fn mark(group: &RowReport) -> String {
    match (group.change, &group.moved_from) {
        ("new" | "vanished", _) => group.change.to_owned(),
        (_, Some(_)) => "moved".to_owned(),
        _ => String::new(),
    }
}

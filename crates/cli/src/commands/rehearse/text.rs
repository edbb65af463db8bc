//! The report of `vramwise rehearse` for people.

use std::fmt::Write as _;

use vramwise_types::Human;

use super::draws::Draws;
use super::json::Report;
use crate::context::Context;
use crate::style::Style;
use crate::table::{Cell, Column, Table};
use crate::text::{counted, grouped, printable};

pub(super) fn render(report: &Report, context: &Context) -> String {
    let style = context.style();
    let mut text = format!(
        "{}, PyTorch {}, {}\n",
        style.bold(&printable(&report.gpu)),
        report.torch,
        if report.gpus == 1 { "emulated".to_owned() } else { format!("{} emulated", report.gpus) }
    );
    verdict(&mut text, report, style);
    if let Some(draws) = &report.draws {
        text.push_str(&draws.exceptions(style));
    }
    figures(&mut text, report, context);
    holders(&mut text, report, context);
    certainty(&mut text, report, style);
    list(&mut text, "notes", &report.notes, style);
    if let Some(path) = &report.snapshot {
        let _ = writeln!(text, "\nsnapshot  {}", printable(path));
    } else if let Some(path) = &report.directory {
        let _ = writeln!(text, "\nkept in  {}", printable(path));
    }
    text
}

fn verdict(text: &mut String, report: &Report, style: Style) {
    let (total, peak) = (Human(report.total_bytes), Human(report.peak_device_bytes));
    let _ = match report.fits {
        Some(true) => writeln!(
            text,
            "{}: {peak} of {total}, {} to spare",
            style.good("fits"),
            Human(report.headroom_bytes)
        ),
        Some(false) => match &report.oom {
            Some(oom) => writeln!(
                text,
                "{}: {} were asked for while {} were in use and {} free",
                style.bad("does not fit"),
                Human(oom.tried_bytes),
                Human(oom.total_bytes.saturating_sub(oom.free_bytes)),
                Human(oom.free_bytes)
            ),
            None => writeln!(text, "{}", style.bad("does not fit")),
        },
        None if report.exit_status == 0 && !report.interrupted => writeln!(
            text,
            "{}: if the processes of the program have their peaks at the same time, they take {peak} of {total}",
            style.warn("not known")
        ),
        None => {
            let how = if report.interrupted {
                "the program was interrupted".to_owned()
            } else if report.timed_out {
                "the program was ended at its time limit".to_owned()
            } else {
                format!("the program ended with status {}", report.exit_status)
            };
            let unknown = style.warn("not known");
            if report.processes == 0 && report.interrupted {
                writeln!(text, "{unknown}: {how} before anything was measured")
            } else {
                writeln!(text, "{unknown}: {how}; until then it had taken {peak} of {total}")
            }
        }
    };
}

fn figures(text: &mut String, report: &Report, context: &Context) {
    let draws = report.draws.as_ref();
    let mut columns = vec![
        Column::left("peak"),
        Column::right(""),
        Column::right("bytes"),
        Column::left("by other addresses"),
    ];
    columns.extend(draws.map(|_| Column::left("by other values")));
    let mut table = Table::new(columns);
    let mut row =
        |name: &str, bytes: u64, addresses: Option<(u64, u64)>, drawn: Option<(u64, u64)>| {
            let range = |range: Option<(u64, u64)>| {
                range.filter(|(low, high)| low != high).map_or(String::new(), |(low, high)| {
                    format!("{} to {}", grouped(low), grouped(high))
                })
            };
            let mut cells: Vec<Cell> = vec![
                format!("  {name}").into(),
                Human(bytes).to_string().into(),
                grouped(bytes).into(),
                range(addresses).into(),
            ];
            cells.extend(draws.map(|_| range(drawn).into()));
            table.row(cells);
        };
    let of = |of: fn(&Draws) -> (u64, u64)| draws.map(of);
    let (allocated, reserved) = (report.peak_allocated_bytes, report.peak_reserved_bytes);
    let drawn = of(|draws| draws.peak_allocated_bytes_range);
    row("allocated", allocated, report.peak_allocated_bytes_range, drawn);
    let drawn = of(|draws| draws.peak_reserved_bytes_range);
    row("reserved", reserved, report.peak_reserved_bytes_range, drawn);
    let drawn = of(|draws| draws.peak_device_bytes_range);
    row("on the device", report.peak_device_bytes, None, drawn);
    row("context in that", report.context_bytes, None, None);
    text.push('\n');
    text.push_str(&table.render(context.style(), context.width()));
}

fn holders(text: &mut String, report: &Report, context: &Context) {
    if report.holders.is_empty() {
        return;
    }
    let mut table =
        Table::new([Column::wrapped("held at the peak by"), Column::right(""), Column::right("")]);
    for holder in &report.holders {
        table.row([
            format!("  {}", holder.place).into(),
            Human(holder.bytes).to_string().into(),
            counted(holder.blocks, "block").into(),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render(context.style(), context.width()));
}

fn certainty(text: &mut String, report: &Report, style: Style) {
    if report.exact {
        let _ = writeln!(
            text,
            "\n{}: every size is PyTorch's own, every workspace is known, and no figure depends on the \
             driver's addresses",
            style.good("exact")
        );
    } else {
        list(text, "how sure", &report.uncertain, style);
    }
}

fn list(text: &mut String, title: &str, lines: &[String], style: Style) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.bold(title));
    for line in lines {
        let _ = writeln!(text, "  - {}", printable(line));
    }
}

//! The report of `vramwise ranks` for people.

use std::fmt::Write as _;

use super::json::{OutlierReport, RankReport, Report};
use crate::context::Context;
use crate::style::Paint;
use crate::table::{Cell, Column, Table};
use crate::text::{counted, grouped, printable};

pub(super) fn render(report: &Report, context: &Context) -> String {
    let style = context.style();
    let steps = report.ranks.iter().any(|r| r.step.is_some());
    let mut columns = vec![Column::right("rank"), Column::right("device")];
    if steps {
        columns.insert(0, Column::right("step"));
    }
    columns.extend([
        Column::right("reserved"),
        Column::right("allocated"),
        Column::right("fragmentation"),
        Column::right("events"),
        Column::right("oom"),
        Column::left(""),
        Column::wrapped("file"),
    ]);
    let mut table = Table::new(columns);
    for rank in &report.ranks {
        table.row(row(rank, report, steps));
    }
    let mut text = table.render(style, context.width());
    let _ = writeln!(
        text,
        "{}",
        style.dim("peaks of reserved and allocated memory; fragmentation when most was reserved")
    );
    if report.outliers.is_empty() {
        let _ = writeln!(
            text,
            "\nno rank stands out among {}",
            counted(report.ranks.len() as u64, "row")
        );
    } else {
        let _ = writeln!(text, "\n{}", style.bold("what stands out"));
    }
    for outlier in &report.outliers {
        let _ = writeln!(text, "  {}: {}", who(outlier, steps), outlier.text);
    }
    if !report.same_settings {
        let _ = writeln!(
            text,
            "\n{}",
            style.warn("not all files were recorded under the same settings")
        );
    }
    text
}

fn row(rank: &RankReport, report: &Report, steps: bool) -> Vec<Cell> {
    let unknown = || "?".to_owned();
    let stands = |o: &OutlierReport| o.file == rank.file && o.device == rank.device;
    let outlier = report.outliers.iter().any(stands);
    let peak = |pick: fn(&crate::figures::PeakBytes) -> crate::figures::Bytes| {
        rank.peaks.as_ref().map_or_else(unknown, |peaks| pick(peaks).human())
    };
    let mut cells: Vec<Cell> = Vec::new();
    if steps {
        cells.push(rank.step.map_or_else(unknown, |step| step.to_string()).into());
    }
    cells.extend([
        rank.rank.map_or_else(unknown, |rank| rank.to_string()).into(),
        rank.device.to_string().into(),
        peak(|p| p.reserved).into(),
        peak(|p| p.allocated).into(),
        rank.fragmentation.human().into(),
        grouped(rank.events as u64).into(),
        if rank.oom > 0 { Cell::painted(grouped(rank.oom as u64), Paint::Bad) } else { "".into() },
        if outlier { Cell::painted("outlier", Paint::Warn) } else { "".into() },
        rank.file.as_str().into(),
    ]);
    cells
}

fn who(outlier: &OutlierReport, steps: bool) -> String {
    let mut text = match outlier.rank {
        Some(rank) => format!("rank {rank}"),
        None => printable(&outlier.file).into_owned(),
    };
    if outlier.device > 0 {
        let _ = write!(text, ", device {}", outlier.device);
    }
    if let Some(step) = outlier.step.filter(|_| steps) {
        let _ = write!(text, ", step {step}");
    }
    text
}

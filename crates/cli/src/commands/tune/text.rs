//! The report of `vramwise tune` for people.

use std::fmt::Write as _;

use vramwise_tune::{Candidate, Report, TuneOptions};
use vramwise_types::Human;

use super::{Input, json};
use crate::context::Context;
use crate::style::{Paint, Style};
use crate::table::{Cell, Column, Table};
use crate::text::{counted, grouped, printable};

pub(super) fn render(
    options: &TuneOptions,
    inputs: &[Input],
    report: &Report,
    drop_in: &super::drop_in::DropInReport,
    context: &Context,
) -> String {
    let style = context.style();
    let mut text = String::new();
    for input in inputs {
        head(&mut text, input, style);
    }
    text.push('\n');
    recommendation(&mut text, options, report, style);
    figures(&mut text, report, inputs.len() > 1);
    super::drop_in::render(&mut text, drop_in, style);
    let _ = writeln!(text, "\n{}", style.bold("settings tried"));
    text.push_str(&table(options, report, context).render(style, context.width()));
    rest_of_table(&mut text, report, context, style);
    let _ = writeln!(text, "\n{}", style.bold("what each option does here, alone"));
    for effect in &report.effects {
        let _ = writeln!(text, "  - {}", effect.sentence);
    }
    let _ = writeln!(text, "\n{}  {}", style.bold("kind of load"), report.load.kind.describe());
    for reason in report.load.reasons() {
        let _ = writeln!(text, "  - {reason}");
    }
    let _ = writeln!(text, "\n{}", style.bold("assumptions"));
    for line in json::assumptions(inputs, report, options.capacity) {
        let _ = writeln!(text, "  - {}", printable(&line));
    }
    let warnings: Vec<&String> = inputs.iter().flat_map(|i| &i.warnings).collect();
    if !warnings.is_empty() {
        let _ = writeln!(text, "\n{}", style.bold("warnings"));
        for line in warnings {
            let _ = writeln!(text, "  - {}", printable(line));
        }
    }
    text
}

fn head(text: &mut String, input: &Input, style: Style) {
    let allocs = input.recording.agreement.allocs;
    let _ = writeln!(
        text,
        "{}  device {}, {}, PyTorch {}",
        style.bold(&printable(&input.file)),
        input.device,
        counted(input.events as u64, "event"),
        input.version
    );
    let proof = format!(
        "{}/{} recorded addresses reproduced to the byte",
        grouped(allocs.exact),
        grouped(allocs.recorded)
    );
    let proof = if input.recording.requests_only {
        style.warn("recorded under vramwise's allocator: its blocks are not compared, its requests are replayed")
    } else {
        style.good(&proof)
    };
    let _ = writeln!(text, "  model check  {proof}");
}

fn named(conf: &str) -> &str {
    if conf.is_empty() { "PyTorch's defaults" } else { conf }
}

fn recommendation(text: &mut String, options: &TuneOptions, report: &Report, style: Style) {
    let version = options.version;
    let baseline = &report.candidates[report.baseline];
    let best = &report.candidates[report.recommended];
    let (bytes, percent) = json::gain(baseline.worst_peak(), best.worst_peak());
    if best.oom_runs > 0 {
        nothing_fits(text, options, best, style);
    }
    if report.recommended == report.baseline {
        let _ = writeln!(
            text,
            "{}  keep what you have ({}): none of {} other settings is better{}",
            style.bold(if best.oom_runs > 0 { "nearest" } else { "recommended" }),
            named(&baseline.conf),
            report.candidates.len() - 1,
            if best.oom_runs > 0 { "" } else { " by more than 1 %" }
        );
    } else {
        let _ = writeln!(
            text,
            "{}",
            style.bold(if best.oom_runs > 0 { "nearest" } else { "recommended" })
        );
        match json::env(&best.conf, version) {
            Some(line) => {
                let _ = writeln!(text, "\n    {}\n", style.good(&line));
                for other in json::env_alternatives(&best.conf, version) {
                    let _ = writeln!(
                        text,
                        "  or, under the name that is not tied to CUDA (2.10 and later):  {other}"
                    );
                }
            }
            None => {
                let _ = writeln!(text, "\n    unset the variable: PyTorch's defaults are best\n");
            }
        }
        let change = format!(
            "{} → {}, {:.1} % less ({} bytes)",
            Human(baseline.worst_peak()),
            Human(best.worst_peak()),
            percent,
            grouped(bytes.unsigned_abs())
        );
        if bytes > 0 && baseline.oom_runs == 0 && best.oom_runs == 0 {
            let _ = writeln!(text, "  peak of reserved memory  {}", style.good(&change));
        }
    }
    if let Some(capacity) = options.capacity {
        let failing = |c: &Candidate| format!("{} of {} replays", c.oom_runs, c.runs);
        let _ = writeln!(
            text,
            "  out of memory at {}  now {}, {} {}",
            Human(capacity),
            failing(baseline),
            chosen(best),
            failing(best)
        );
    }
}

/// Said first: what is recommended then is only the nearest to fitting.
fn nothing_fits(text: &mut String, options: &TuneOptions, best: &Candidate, style: Style) {
    let what = match (options.capacity, options.total) {
        (Some(bytes), _) => {
            format!("nothing fits {}: no setting tried keeps this program within it", Human(bytes))
        }
        (None, Some(bytes)) => format!(
            "nothing fits a card of {}: no setting tried keeps this program within it",
            Human(bytes)
        ),
        (None, None) => {
            "nothing fits: under every setting tried a file exceeds the limit that its own failed \
                         request points to"
                .to_owned()
        }
    };
    let needs = best
        .smallest_capacity
        .map_or(String::new(), |bytes| format!("; the nearest needs {}", Human(bytes)));
    let line = format!("{what}{needs}");
    let _ = writeln!(text, "{}\n", style.bad(&line));
}

fn figures(text: &mut String, report: &Report, several: bool) {
    let baseline = &report.candidates[report.baseline];
    let best = &report.candidates[report.recommended];
    let smallest =
        |c: &Candidate| c.smallest_capacity.map_or("-".to_owned(), |b| Human(b).to_string());
    let _ = writeln!(
        text,
        "  smallest capacity        {} (now {}): it still runs in that, emptying its cache when full",
        smallest(best),
        smallest(baseline)
    );
    let over = |c: &Candidate| ratio(c.worst_peak(), c.live_of_peak);
    let _ = writeln!(
        text,
        "  physical limit           {}: the most that was in use at one time; now {}, {} {}{}",
        Human(report.peak_live),
        over(baseline),
        chosen(best),
        over(best),
        if several { " (each peak over what its own file had in use)" } else { "" }
    );
}

/// What the setting at the top of the report is called.
fn chosen(best: &Candidate) -> &'static str {
    if best.oom_runs > 0 { "nearest" } else { "recommended" }
}

/// `1.90×`.
#[allow(clippy::cast_precision_loss)] // a ratio for people
fn ratio(bytes: u64, live: u64) -> String {
    if live == 0 { "-".to_owned() } else { format!("{:.3}×", bytes as f64 / live as f64) }
}

fn table(options: &TuneOptions, report: &Report, context: &Context) -> Table {
    let limited = options.capacity.is_some() || report.candidates.iter().any(|c| c.oom_runs > 0);
    let ranged =
        report.candidates.iter().any(|c| c.peak_reserved_range.0 != c.peak_reserved_range.1);
    let mut columns = vec![Column::wrapped("settings"), Column::right("peak reserved")];
    if ranged {
        columns.push(Column::right("by addresses"));
    }
    columns.push(Column::right("of live"));
    columns.push(Column::right("smallest"));
    if limited {
        columns.push(Column::right("OOM"));
    }
    columns.extend([
        Column::right("largest free"),
        Column::right("split free"),
        Column::right("retries"),
        Column::right("device calls"),
        Column::right("ms"),
    ]);
    let mut table = Table::new(columns);
    for (i, c) in shown(report, context.global.top) {
        let paint = |text: String| {
            if i == report.recommended {
                Cell::painted(text, Paint::Good)
            } else if i == report.baseline {
                Cell::painted(text, Paint::Bold)
            } else {
                Cell::from(text)
            }
        };
        let mark = if i == report.recommended {
            if c.oom_runs > 0 { " ← nearest" } else { " ← recommended" }
        } else if i == report.baseline {
            " ← now"
        } else {
            ""
        };
        let mut row = vec![
            paint(format!("{}{mark}", named(&c.conf))),
            Cell::from(Human(c.worst_peak()).to_string()),
        ];
        if ranged {
            let (low, high) = c.peak_reserved_range;
            row.push(Cell::from(if low == high {
                String::new()
            } else {
                format!("from {}", Human(low))
            }));
        }
        row.push(Cell::from(ratio(c.worst_peak(), c.live_of_peak)));
        row.push(Cell::from(c.smallest_capacity.map_or("-".to_owned(), |b| Human(b).to_string())));
        if limited {
            row.push(Cell::from(format!("{:.0} %", c.oom_rate() * 100.0)));
        }
        row.extend([
            Cell::from(Human(c.largest_free_block).to_string()),
            Cell::from(Human(c.inactive_split).to_string()),
            Cell::from(grouped(c.retries)),
            Cell::from(grouped(c.device_calls.total())),
            Cell::from(format!("{:.1}", c.device_ms)),
        ]);
        table.row(row);
    }
    table
}

/// The best settings that are not dominated, and always those in force, recommended and PyTorch's own.
fn shown(report: &Report, top: usize) -> Vec<(usize, &Candidate)> {
    let always = |i: usize, c: &Candidate| {
        i == report.recommended || i == report.baseline || c.conf.is_empty()
    };
    let mut room = top;
    let mut rows = Vec::new();
    for (i, c) in report.candidates.iter().enumerate() {
        if always(i, c) {
            rows.push((i, c));
        } else if !c.dominated && room > 0 {
            room -= 1;
            rows.push((i, c));
        }
    }
    rows
}

fn rest_of_table(text: &mut String, report: &Report, context: &Context, style: Style) {
    let rows = shown(report, context.global.top).len();
    let hidden = report.candidates.len() - rows;
    let mut lines = Vec::new();
    if hidden > 0 {
        lines.push(format!(
            "{} hidden: another setting is at least as good in everything (all of them: --json)",
            counted(hidden as u64, "setting")
        ));
    }
    lines.push(
        "of live: peak over the most that was in use at one time; smallest: capacity in which it still \
         runs (-: not looked for); by addresses: the lowest over other orders of the driver's addresses"
            .to_owned(),
    );
    lines.push(
        "largest free, split free: when most was held; ms: device calls on an idle H200; recommended \
         is the simplest setting within 1 % of the lowest peak"
            .to_owned(),
    );
    let line = lines.join("\n");
    let _ = writeln!(text, "{}", style.dim(&line));
}

pub(super) fn refusal(failed: &Input, style: Style) -> String {
    let mut text = String::new();
    let allocs = failed.recording.agreement.allocs;
    let _ = writeln!(text, "{}", style.bold(&printable(&failed.file)));
    let _ = writeln!(
        text,
        "  model check  {}",
        style.bad(&format!(
            "{}/{} recorded addresses reproduced",
            grouped(allocs.exact),
            grouped(allocs.recorded)
        ))
    );
    let _ = writeln!(
        text,
        "\n{}  {}",
        style.bad("nothing is recommended:"),
        printable(&json::reason(failed))
    );
    let _ = writeln!(
        text,
        "\nA recommendation would be a guess. vramwise replay shows where the model and the recording \
         part; --capacity and --torch tell what the file does not say."
    );
    for line in &failed.recording.assumptions {
        let _ = writeln!(text, "  - {}", printable(line));
    }
    text
}

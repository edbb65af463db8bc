//! `vramwise rehearse --compare`: the program as it is, and with ways of saving memory switched on.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;
use vramwise_rehearse::{Rehearsal, Streams, Verdict};
use vramwise_types::Human;

use super::json::Report;
use super::{Run, finished};
use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Column, Table};
use crate::text::counted;

/// A way of saving memory. Its values have no text of their own, which would make the help page longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    Amp,
    Checkpoint,
    Fused,
    Compile,
    Expandable,
}

impl Strategy {
    fn name(self) -> &'static str {
        match self {
            Strategy::Amp => "amp",
            Strategy::Checkpoint => "checkpoint",
            Strategy::Fused => "fused",
            Strategy::Compile => "compile",
            Strategy::Expandable => "expandable",
        }
    }

    /// How one would write it.
    fn meaning(self) -> &'static str {
        match self {
            Strategy::Amp => {
                "torch.autocast(\"cuda\", dtype=torch.bfloat16) around the model's call"
            }
            Strategy::Checkpoint => "gradient_checkpointing_enable() of transformers' models",
            Strategy::Fused => "fused=True for the optimizer",
            Strategy::Compile => "torch.compile of the model's forward",
            Strategy::Expandable => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Comparison {
    schema: u32,
    gpu: String,
    runs: Vec<One>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct One {
    /// Null for the program as it is.
    strategy: Option<&'static str>,
    meaning: Option<&'static str>,
    /// Change of the peaks against the program as it is; where values had to be assumed, of the highest over the draws.
    allocated_change_bytes: i64,
    reserved_change_bytes: i64,
    conclusion: String,
    report: Report,
}

/// Runs the program once for each, and reports.
pub(super) fn run(
    strategies: &[Strategy],
    draws: Option<u32>,
    rehearsal: &Rehearsal,
    context: &Context,
) -> Result<Status, Failure> {
    let mut runs: Vec<One> = Vec::new();
    let mut status = Status::Fine;
    let progress = context.progress("rehearsing", strategies.len() as u64 + 1);
    for (done, strategy) in
        (0u64..).zip([None].into_iter().chain(strategies.iter().copied().map(Some)))
    {
        let rehearsal = with(strategy, rehearsal);
        let mut run = Run::new(&rehearsal, context)?;
        run.draw(draws, &rehearsal, context)?;
        progress.set(done + 1);
        let interrupted = run.outcome.ended.interrupted();
        let failed = strategy.is_none() && run.outcome.verdict == Verdict::Unknown;
        // The table names no files; the report of a program that fails as it is does.
        let told = context.global.json || failed;
        let report = finished(&rehearsal, &run, told, context)?;
        if strategy.is_none() || interrupted {
            status = run.status();
        }
        runs.push(one(strategy, report, runs.first().map(|first| &first.report)));
        // What fails as it is says nothing about ways to save memory.
        if failed || interrupted {
            break;
        }
    }
    drop(progress);
    let comparison = Comparison { schema: 1, gpu: rehearsal.profile.card.name.clone(), runs };
    context.answer(&comparison, || match comparison.runs.as_slice() {
        [only] if only.report.fits.is_none() => super::text::render(&only.report, context),
        _ => render(&comparison, context),
    })?;
    Ok(status)
}

fn with(strategy: Option<Strategy>, rehearsal: &Rehearsal) -> Rehearsal {
    let mut rehearsal = rehearsal.clone();
    let name = strategy.map_or("as-it-is", Strategy::name);
    if let Some(directory) = &mut rehearsal.directory {
        directory.push(name);
    }
    match strategy {
        None => return rehearsal,
        Some(Strategy::Expandable) => {
            let own = rehearsal.conf.take().or_else(from_environment);
            let rest = own.filter(|own| !own.is_empty()).map_or(String::new(), |own| own + ",");
            rehearsal.conf = Some(format!("{rest}expandable_segments:True"));
        }
        Some(strategy) => rehearsal.strategies = vec![strategy.name().to_owned()],
    }
    rehearsal.streams = Streams::Hidden;
    rehearsal
}

fn from_environment() -> Option<String> {
    ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok())
}

fn one(strategy: Option<Strategy>, report: Report, base: Option<&Report>) -> One {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let figures = report.figures();
    let base_figures = base.map_or(figures, Report::figures);
    let allocated = signed(figures.allocated) - signed(base_figures.allocated);
    let reserved = signed(figures.reserved) - signed(base_figures.reserved);
    let conclusion = conclusion(strategy, &report, base, allocated, reserved);
    One {
        strategy: strategy.map(Strategy::name),
        meaning: strategy.map(Strategy::meaning),
        allocated_change_bytes: allocated,
        reserved_change_bytes: reserved,
        conclusion,
        report,
    }
}

/// What it does, and what holds the peak then.
fn conclusion(
    strategy: Option<Strategy>,
    report: &Report,
    base: Option<&Report>,
    allocated: i64,
    reserved: i64,
) -> String {
    let holder = report.holder().map_or(String::new(), |holder| {
        format!("most is held by {} ({})", holder.place, Human(holder.bytes))
    });
    let (Some(strategy), Some(base)) = (strategy, base) else { return holder };
    if report.fits.is_none() {
        return format!("the program fails with it (status {}), see its log", report.exit_status);
    }
    let (now, base) = (report.figures(), base.figures());
    let (change, before) = match strategy {
        Strategy::Expandable => (reserved, base.reserved),
        _ => (allocated, base.allocated),
    };
    let size = Human(change.unsigned_abs());
    let small = change.unsigned_abs() < before / 200;
    match change {
        _ if base.fits == Some(false) && now.fits == Some(true) => {
            format!("makes it fit; {holder}")
        }
        0 => format!("changes nothing: {holder}"),
        _ if small => format!("changes next to nothing ({}{size}): {holder}", sign(change)),
        change if change < 0 => format!("takes off {size}; {holder}"),
        _ => format!("costs {size}; {holder}"),
    }
}

fn sign(change: i64) -> &'static str {
    if change < 0 { "-" } else { "+" }
}

fn render(comparison: &Comparison, context: &Context) -> String {
    let style = context.style();
    let mut table = Table::new([
        Column::left("with"),
        Column::left("fits"),
        Column::right("allocated"),
        Column::right("reserved"),
        Column::right("device"),
        Column::wrapped("what it does"),
    ]);
    for run in &comparison.runs {
        let figures = run.report.figures();
        let fits = match figures.fits {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        table.row([
            run.strategy.unwrap_or("(as it is)").into(),
            fits.into(),
            Human(figures.allocated).to_string().into(),
            Human(figures.reserved).to_string().into(),
            Human(figures.device).to_string().into(),
            run.conclusion.clone().into(),
        ]);
    }
    let mut text = format!("{}, emulated\n\n", style.bold(&comparison.gpu));
    text.push_str(&table.render(style, context.width()));
    let most = comparison
        .runs
        .iter()
        .filter_map(|run| run.report.draws.as_ref())
        .map(|d| d.runs.len())
        .max();
    if let Some(most) = most {
        let _ = writeln!(
            text,
            "\nvalues had to be assumed: the figures are the highest over {} (--draws, --assume)",
            counted(most as u64, "draw")
        );
    }
    let meanings = comparison.runs.iter().filter_map(|run| Some((run.strategy?, run.meaning?)));
    text.push('\n');
    for (name, meaning) in meanings {
        let _ = writeln!(text, "{name:<10}  {meaning}");
    }
    text
}

//! `vramwise probe`: what a real card is like, written down for rehearsals elsewhere.

mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use serde::Serialize;
use vramwise_profile::Card;
use vramwise_rehearse::measure::{MeasuredCard, MeasuredTable, Measuring, Progress};
use vramwise_types::Human;

use crate::Status;
use crate::commands::rehearse::failure;
use crate::context::Context;
use crate::destination::Destination;
use crate::failure::Failure;
use crate::text::{counted, grouped, printable};

const EXAMPLES: &str = "\
Examples:
  vramwise probe --quick
      A minute on this machine's GPU: its profile, and the workspaces of the most usual layers.
  vramwise probe --into cards --id ours --seconds 20m
      All layers of well-known models, as far as the time goes: cards/ours.json and cards/ours.workspaces.
  vramwise rehearse --gpu cards/ours.json -- python train.py
      Elsewhere, without the GPU: on that card. The table beside the profile is used, too.
  vramwise probe --values values.jsonl -- python train_moe.py --steps 8
      What this program reads back from the GPU (which experts its router chose, steps that its gradient
      scaler skipped), for rehearsals of it with other settings, on other cards:
      vramwise rehearse --values values.jsonl --gpu rtx4090 -- python train_moe.py --steps 8

PyTorch's CUDA build and a GPU are needed; for the layers of vision models also torchvision, and timm and
diffusers where they are installed. The GPU should be idle: what others have on it would be counted in the
context's memory. It is the first GPU that PyTorch sees; CUDA_VISIBLE_DEVICES chooses. Nothing that
identifies the card is written. With --values nothing is measured: the command runs once, as it is, and each
of its processes that reads from the GPU has a log; values.rank-1.jsonl is that of rank 1.

Exit status: 0 the files were written, 2 nothing could be measured or wrong usage; with --values that of the
command.";

/// Measure this machine's GPU for rehearsals elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory for the files.
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    into: PathBuf,
    /// Short name of the card, which the files get; made of the card's own name without it.
    #[arg(long, value_name = "NAME", value_parser = id)]
    id: Option<String>,
    /// Few sizes, and the layers of the most usual models only.
    #[arg(long)]
    quick: bool,
    /// Only the profile.
    #[arg(long, conflicts_with_all = ["jobs", "seconds", "workers"])]
    no_workspaces: bool,
    /// The longest to spend on workspaces, such as 90s or 20m; without it 10 minutes, or 2 with --quick.
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    seconds: Option<Duration>,
    /// Processes that measure workspaces at a time; without it one less than there are CPUs, 15 at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// Layers to measure instead of those of well-known models: a list as crates/probe/python/layers.py writes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    jobs: Option<PathBuf>,
    /// The Python that has PyTorch.
    #[arg(long, value_name = "PATH", default_value = "python3", value_hint = ValueHint::ExecutablePath)]
    python: PathBuf,
    /// Instead, run the command behind -- on the GPU and write what it reads back to this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "command",
          conflicts_with_all = ["into", "id", "quick", "no_workspaces", "jobs", "seconds", "workers", "python"])]
    values: Option<PathBuf>,
    /// The program and its arguments, with --values.
    #[arg(last = true, value_name = "COMMAND", requires = "values")]
    command: Vec<String>,
}

fn id(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Err("write letters, digits, - and _".to_owned())
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Report {
    schema: u32,
    gpu: String,
    gpu_id: String,
    /// Whether the device was an emulated one: then nothing was measured.
    emulated: bool,
    torch: String,
    cuda: String,
    cudnn: Option<u32>,
    total_bytes: u64,
    /// Bytes in use when the context was made, and when every library was used.
    context_bytes: u64,
    context_full_bytes: u64,
    /// The file with the profile.
    profile: String,
    /// The file with the table of workspaces; null without one.
    workspaces: Option<String>,
    table: Option<TableReport>,
    /// Figures that are not those of the built-in profile of this card; null where there is none that was measured.
    differences: Option<Vec<Difference>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TableReport {
    entries: usize,
    /// Entries that the table which comes with vramwise has, too, and those of them that are the same there; null where
    /// there is no such table for this card and cuDNN.
    built_in_entries: Option<usize>,
    built_in_entries_same: Option<usize>,
    /// Graphs of which nothing can be said.
    unclear: u64,
    jobs_listed: u64,
    jobs_begun: u64,
    jobs_failed: u64,
    first_failure: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Difference {
    figure: String,
    measured: String,
    built_in: String,
}

/// Measures and writes.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    if let Some(path) = &args.values {
        return values::run(path, &args.command, context);
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let usual = Duration::from_secs(if args.quick { 120 } else { 600 });
    let measuring = Measuring {
        python: args.python.clone(),
        id: args.id.clone(),
        quick: args.quick,
        seconds: args.seconds.unwrap_or(usual).as_secs(),
        workers: args.workers.unwrap_or(cpus.saturating_sub(1).clamp(1, 15)),
        jobs: args.jobs.clone(),
    };
    std::fs::create_dir_all(&args.into).map_err(|error| Failure::io("make", &args.into, &error))?;
    let bar = context.progress("asking the device", 1);
    let mut last = String::new();
    let mut told = |progress: &Progress| {
        if progress.doing != last {
            last.clone_from(&progress.doing);
            context.note(&progress.doing);
        }
        if progress.all > 0 {
            bar.set_total(progress.all);
            bar.set(progress.done);
        }
    };
    let card = measuring.card(&mut told).map_err(|error| failure(&error))?;
    let place = |end: &str| {
        let path = args.into.join(format!("{}.{end}", card.card.id));
        context.destination(&path)
    };
    let (profile, table) = (place("json")?, place("workspaces")?);
    let measured = if args.no_workspaces {
        None
    } else {
        Some(measuring.table(&card, &mut told).map_err(|error| failure(&error))?)
    };
    drop(bar);
    let mut text = serde_json::to_vec_pretty(&card.card)
        .map_err(|error| Failure::new(format!("cannot write the profile as JSON: {error}")))?;
    text.push(b'\n');
    if let Some(measured) = &measured {
        table.write(&measured.bytes)?;
    }
    profile.write(&text)?;
    let report = Report::new(&card, measured.as_ref(), &profile, &table);
    context.answer(&report, || report.render(context))?;
    Ok(Status::Fine)
}

impl Report {
    fn new(
        measured: &MeasuredCard,
        table: Option<&MeasuredTable>,
        profile: &Destination,
        workspaces: &Destination,
    ) -> Self {
        let card = &measured.card;
        let own =
            card.context_steps.iter().map(|(_, used, reserved)| used.saturating_sub(*reserved));
        let built_in = vramwise_profile::find(&card.name).filter(|profile| profile.card.measured);
        Self {
            schema: 1,
            gpu: card.name.clone(),
            gpu_id: card.id.clone(),
            emulated: measured.emulated,
            torch: measured.torch.version.clone(),
            cuda: measured.torch.cuda.clone(),
            cudnn: measured.cudnn,
            total_bytes: card.total_bytes,
            context_bytes: card.context_bytes.unwrap_or(0),
            context_full_bytes: own.max().unwrap_or(0),
            profile: profile.path().display().to_string(),
            workspaces: table.map(|_| workspaces.path().display().to_string()),
            table: table.map(|table| TableReport {
                entries: table.entries,
                built_in_entries: table.shipped.map(|(both, _)| both),
                built_in_entries_same: table.shipped.map(|(_, same)| same),
                unclear: table.unclear,
                jobs_listed: table.jobs.0,
                jobs_begun: table.jobs.1,
                jobs_failed: table.failed.0,
                first_failure: table.failed.1.clone(),
            }),
            differences: built_in.map(|built_in| differences(card, &built_in.card)),
            warnings: measured.warnings.clone(),
        }
    }

    fn render(&self, context: &Context) -> String {
        let style = context.style();
        let cudnn = self.cudnn.map_or(String::new(), |n| format!(", cuDNN {n}"));
        let mut text = format!(
            "{}{}, PyTorch {}{cudnn}\n\n",
            style.bold(&printable(&self.gpu)),
            if self.emulated { ", emulated" } else { "" },
            self.torch
        );
        let mut line = |name: &str, value: String| text.push_str(&format!("{name:<11} {value}\n"));
        line("memory", format!("{} bytes", grouped(self.total_bytes)));
        let full = Human(self.context_full_bytes);
        line("context", format!("{}, {full} with all libraries", Human(self.context_bytes)));
        line("profile", printable(&self.profile).into_owned());
        if let (Some(path), Some(table)) = (&self.workspaces, &self.table) {
            let TableReport { entries, jobs_begun, jobs_listed, .. } = table;
            line("workspaces", format!("{}: {entries} entries", printable(path)));
            line("", format!("from {jobs_begun} of {}", counted(*jobs_listed, "layer")));
            if let (Some(both), Some(same)) = (table.built_in_entries, table.built_in_entries_same)
            {
                line(
                    "",
                    format!("{same} of {both} that the built-in table has are the same there"),
                );
            }
            if let Some(why) = &table.first_failure {
                line("", format!("{} failed, first with {}", table.jobs_failed, printable(why)));
            }
        }
        if let Some(differences) = &self.differences {
            let equal = differences.is_empty();
            text.push_str(if equal {
                "\nthe built-in profile of this card has the same figures\n"
            } else {
                "\nnot as in the built-in profile of this card\n"
            });
            for Difference { figure, measured, built_in } in differences {
                text.push_str(&format!("  - {figure}: {measured}, there {built_in}\n"));
            }
        }
        if !self.warnings.is_empty() {
            text.push_str(&format!("\n{}\n", style.warn("doubtful")));
            for warning in &self.warnings {
                text.push_str(&format!("  - {}\n", printable(warning)));
            }
        }
        text.push_str(&format!(
            "\nuse it with  vramwise rehearse --gpu {} -- COMMAND\n",
            printable(&self.profile)
        ));
        text
    }
}

/// The figures in which two profiles differ; where they come from and what nothing is computed from is left out.
fn differences(measured: &Card, built_in: &Card) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |figure: &str, measured: String, built_in: String| {
        if measured != built_in {
            found.push(Difference { figure: figure.to_owned(), measured, built_in });
        }
    };
    compare("memory", grouped(measured.total_bytes), grouped(built_in.total_bytes));
    let capability = |card: &Card| format!("{:?}", card.compute_capability);
    compare("compute capability", capability(measured), capability(built_in));
    compare(
        "multiprocessors",
        measured.multiprocessors.to_string(),
        built_in.multiprocessors.to_string(),
    );
    let step = |card: &Card, name: &str| {
        let step = card.context_steps.iter().find(|(n, _, _)| n == name);
        step.map_or("-".to_owned(), |(_, used, reserved)| {
            format!("{} used, {} reserved", grouped(*used), grouped(*reserved))
        })
    };
    for (name, _, _) in &measured.context_steps {
        compare(&format!("step '{name}'"), step(measured, name), step(built_in, name));
    }
    let numbers = measured.attributes.keys().chain(built_in.attributes.keys());
    for number in numbers.collect::<std::collections::BTreeSet<_>>() {
        let value =
            |card: &Card| card.attributes.get(number).map_or("-".to_owned(), ToString::to_string);
        compare(&format!("attribute {number}"), value(measured), value(built_in));
    }
    let parsed = |card: &Card| {
        let text = card.cudnn_json.as_deref().unwrap_or("null");
        serde_json::from_str::<serde_json::Value>(text).unwrap_or_default()
    };
    let (own, other) = (parsed(measured), parsed(built_in));
    let names = own.as_object().into_iter().chain(other.as_object()).flat_map(|map| map.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        compare(&format!("cuDNN's {name}"), own[name].to_string(), other[name].to_string());
    }
    found
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<Report>()
}

#[cfg(test)]
pub(crate) fn schema_of_values() -> schemars::Schema {
    crate::schema::of::<values::Report>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_that_differ_are_told() {
        let built_in = vramwise_profile::find("h200").expect("built in").card;
        assert_eq!(differences(&built_in, &built_in), []);
        let mut other = built_in.clone();
        other.attributes.insert(16, 100);
        other.context_steps[0].1 += 1;
        other.call_costs_us.push(("cuMemCreate".to_owned(), 2, 8.4));
        let figures: Vec<String> =
            differences(&other, &built_in).into_iter().map(|d| d.figure).collect();
        assert_eq!(figures, ["step 'after init'", "attribute 16"]);
    }

    #[test]
    fn a_short_name_is_a_file_s_name() {
        assert_eq!(id("ours_2-b"), Ok("ours_2-b".to_owned()));
        assert!(id("../x").is_err() && id("").is_err());
    }
}

//! `vramwise devices`.

use std::fmt::Write as _;

use serde::Serialize;
use vramwise_profile::Profile;
use vramwise_types::Human;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Column, Table};

const EXAMPLES: &str = "\
Examples:
  vramwise devices
      The cards that a program can be rehearsed on.
  vramwise devices h200 --json > mine.json
      A whole profile, to be changed and used with --gpu mine.json.

A profile of one's own needs few lines: schema, id, name, total_bytes, compute_capability, multiprocessors,
clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes. The rest follows from the compute capability.

Exit status: 0 the list was written, 2 an unknown card or wrong usage.";

/// List the GPUs that can be emulated.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this card, with all that is known of it; a name or the path of a profile.
    card: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Report<'a> {
    schema: u32,
    devices: Vec<Row<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Row<'a> {
    id: &'a str,
    aliases: &'a [String],
    name: &'a str,
    measured: bool,
    source: &'a str,
    total_bytes: u64,
    compute_capability: (u32, u32),
    multiprocessors: u32,
    context_bytes: Option<u64>,
}

/// The built-in profile of this name, or the file.
pub(crate) fn profile(name: &str) -> Result<Profile, Failure> {
    if let Some(profile) = vramwise_profile::find(name) {
        return Ok(profile);
    }
    let path = std::path::Path::new(name);
    let is_file = name.contains('/') || path.extension().is_some_and(|end| end == "json");
    if is_file || path.is_file() {
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
        return vramwise_profile::parse(&text)
            .map_err(|error| Failure::from_error(&error).about(name));
    }
    let known: Vec<String> =
        vramwise_profile::built_in().into_iter().map(|profile| profile.card.id).collect();
    Err(Failure::new(format!("there is no profile of '{name}'")).hint(format!(
        "known are {}; a profile of your own can be given by its path",
        known.join(", ")
    )))
}

/// The table of workspaces that lies beside a profile of one's own, as `vramwise probe` writes them.
pub(crate) fn table_beside(name: &str) -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(name);
    let table = path.with_extension("workspaces");
    (vramwise_profile::find(name).is_none() && path.is_file() && table.is_file()).then_some(table)
}

/// Lists the profiles.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    if let Some(name) = &args.card {
        let profile = profile(name)?;
        context.answer(&profile, || one(&profile))?;
        return Ok(Status::Fine);
    }
    let profiles = vramwise_profile::built_in();
    let report = Report { schema: 1, devices: profiles.iter().map(row).collect() };
    context.answer(&report, || table(&profiles, context))?;
    Ok(Status::Fine)
}

fn row(profile: &Profile) -> Row<'_> {
    let card = &profile.card;
    Row {
        id: &card.id,
        aliases: &card.aliases,
        name: &card.name,
        measured: card.measured,
        source: &card.source,
        total_bytes: card.total_bytes,
        compute_capability: card.compute_capability,
        multiprocessors: card.multiprocessors,
        context_bytes: card.context_bytes,
    }
}

fn table(profiles: &[Profile], context: &Context) -> String {
    let mut table = Table::new([
        Column::left("--gpu"),
        Column::right("memory"),
        Column::right("capability"),
        Column::right("multiprocessors"),
        Column::left("figures"),
        Column::left("name"),
    ]);
    for Profile { card } in profiles {
        let (major, minor) = card.compute_capability;
        table.row([
            card.id.clone().into(),
            Human(card.total_bytes).to_string().into(),
            format!("{major}.{minor}").into(),
            card.multiprocessors.to_string().into(),
            if card.measured { "measured" } else { "specification" }.into(),
            card.name.clone().into(),
        ]);
    }
    table.render(context.style(), context.width())
}

fn one(profile: &Profile) -> String {
    let card = &profile.card;
    let (major, minor) = card.compute_capability;
    let mut text = format!("{} ({})\n", card.name, card.id);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<20} {value}");
    };
    line("memory", format!("{} ({} bytes)", Human(card.total_bytes), card.total_bytes));
    line("compute capability", format!("{major}.{minor}"));
    line("multiprocessors", card.multiprocessors.to_string());
    let context = Human(card.context_bytes.unwrap_or(0));
    let how = if profile.context_is_measured() { "measured" } else { "an estimate" };
    line("context", format!("{context}, {how}"));
    line("second-level cache", Human(card.l2_bytes).to_string());
    line("figures", card.source.clone());
    text
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<Report<'static>>()
}

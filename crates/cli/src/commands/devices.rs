//! `vramwise devices`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use vramwise_profile::{Card, Profile};
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

/// A whole profile, as `--gpu` reads it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CardReport<'a> {
    schema: u32,
    id: &'a str,
    aliases: &'a [String],
    name: &'a str,
    /// Whether the figures were read from a real card.
    measured: bool,
    /// Where the figures come from, in words.
    source: &'a str,
    total_bytes: u64,
    /// Major and minor.
    compute_capability: (u32, u32),
    multiprocessors: u32,
    clock_khz: u32,
    memory_clock_khz: u32,
    memory_bus_bits: u32,
    l2_bytes: u64,
    ecc: bool,
    context_bytes: Option<u64>,
    /// What was done, bytes in use on the device, bytes reserved by PyTorch.
    context_steps: &'a [(String, u64, u64)],
    /// Values of `cudaDeviceAttr` by number.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, i64>"))]
    attributes: &'a BTreeMap<u32, i64>,
    device_prop_hex: DevicePropHexReport<'a>,
    /// The JSON by which cuDNN describes the device.
    cudnn_json: Option<&'a str>,
}

/// `cudaDeviceProp` in hexadecimal, by CUDA's major version; `null`: built from the attributes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DevicePropHexReport<'a> {
    #[serde(rename = "13")]
    cuda13: Option<&'a str>,
    #[serde(rename = "12")]
    cuda12: Option<&'a str>,
}

impl<'a> CardReport<'a> {
    fn new(card: &'a Card) -> Self {
        Self {
            schema: card.schema,
            id: &card.id,
            aliases: &card.aliases,
            name: &card.name,
            measured: card.measured,
            source: &card.source,
            total_bytes: card.total_bytes,
            compute_capability: card.compute_capability,
            multiprocessors: card.multiprocessors,
            clock_khz: card.clock_khz,
            memory_clock_khz: card.memory_clock_khz,
            memory_bus_bits: card.memory_bus_bits,
            l2_bytes: card.l2_bytes,
            ecc: card.ecc,
            context_bytes: card.context_bytes,
            context_steps: &card.context_steps,
            attributes: &card.attributes,
            device_prop_hex: DevicePropHexReport {
                cuda13: card.device_prop_hex.cuda13.as_deref(),
                cuda12: card.device_prop_hex.cuda12.as_deref(),
            },
            cudnn_json: card.cudnn_json.as_deref(),
        }
    }
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
        context.answer(&CardReport::new(&profile.card), || one(&profile))?;
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

#[cfg(test)]
pub(crate) fn schema_card() -> schemars::Schema {
    crate::schema::of::<CardReport<'static>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_profile_is_the_whole_and_can_be_read_again() {
        for profile in vramwise_profile::built_in() {
            let ours = serde_json::to_value(CardReport::new(&profile.card)).unwrap();
            assert_eq!(ours, serde_json::to_value(&profile).unwrap());
            assert_eq!(vramwise_profile::parse(&ours.to_string()).unwrap(), profile);
        }
    }
}

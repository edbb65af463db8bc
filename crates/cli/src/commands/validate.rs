//! `vramwise validate FILE`.

mod json;
mod text;

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_trace::{Description, DeviceDescription, Replayable, describe};

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = "\
Examples:
  vramwise validate snapshot.pickle
  vramwise validate --json rank0.pickle.gz
  ssh host cat snapshot.pickle | vramwise validate -

Exit status: 0 it can be replayed, 1 it cannot (the report says why), 2 it cannot be read.";

/// Say what is in a snapshot, and whether it can be replayed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot: a pickle or JSON file, also gzipped or zstd-compressed; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Reads the file and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    let snapshot = input::read(&args.file, context)?;
    let mut description = describe(&snapshot);
    if let Some(number) = context.global.device {
        keep_device(&mut description, number, args)?;
    }
    let file = input::shown(&args.file);
    let (strings, stacks) = (snapshot.strings.len(), description.stacks);
    context.note(&format!("{file}: read, with {strings} different strings and {stacks} stacks"));
    context.answer(&json::Report::new(&file, &description), || {
        text::render(&file, &description, context)
    })?;
    let replayable = |d: &DeviceDescription| !matches!(d.replayable, Replayable::No(_));
    let any = description.devices.iter().any(replayable);
    Ok(if any { Status::Fine } else { Status::Finding })
}

/// Drops the other devices.
fn keep_device(description: &mut Description, number: u32, args: &Args) -> Result<(), Failure> {
    let count = description.devices.len();
    description.devices.retain(|d| d.device == number as usize);
    if description.devices.is_empty() {
        let what = format!("there is no device {number}: the file has {count}");
        return Err(Failure::new(what).at(input::shown(&args.file)));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report<'static>>()
}

//! `vramwise leaks FILE...`.

mod json;
mod text;

use std::path::PathBuf;

use clap::ValueHint;
use vramwise_analyze::leaks::{self, DeviceLeaks, NoSuchMarker};

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::several;

const EXAMPLES: &str = "\
Examples:
  vramwise leaks snapshot.pickle
      Which lines keep more memory after every step, and how much.
  vramwise leaks snapshot.pickle --marker train_step
      Steps end where torch.profiler.record_function(\"train_step\") does.
  vramwise leaks ranks/ --json

Steps are told by annotations that repeat (the profiler's, optimizer.step), by --marker, or else by the
period of the history. At least four are needed: record several. A cache that fills once is no leak.

Exit status: 0 nothing leaks (or no steps were found, which the report says), 1 something does, or
some files cannot be read, 2 none can, or wrong usage.";

/// Find memory that grows from step to step and is never given back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Snapshots with their histories; a directory means all in it, - standard input.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    /// Annotation (or user_metadata) that ends each step, in full or a part of it.
    #[arg(long, value_name = "NAME", value_parser = crate::args::marker)]
    marker: Option<String>,
    /// Frames of the user's own code that name a place.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::frames)]
    frames: usize,
}

/// One file and what grows in it.
struct Looked {
    file: String,
    devices: Vec<DeviceLeaks>,
}

/// Reads the files, looks at every device and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let files = several::once(input::expand(&args.files)?, context);
    context.protect(&files)?;
    let options = leaks::Options {
        device: context.global.device,
        marker: args.marker.clone(),
        frames: args.frames,
    };
    let several = several::each(&files, context, |path| {
        let snapshot = input::read(path, context)?;
        input::device_or_first(&snapshot, path, context.global.device)?;
        let file = input::shown(path);
        let devices = leaks::find(&snapshot, &options)
            .map_err(|no| no_such_marker(&no, args.marker.as_deref(), &file))?;
        Ok(Looked { file, devices })
    })?;
    let looked = &several.read;
    let report = json::Report::new(looked, several.unreadable.clone());
    context.answer(&report, || text::render(looked, context))?;
    let leaks = looked.iter().flat_map(|l| &l.devices).any(|d| !d.leaks.is_empty());
    Ok(several.status(leaks))
}

/// What to say where the marker that the user named does not occur in a file.
pub(super) fn no_such_marker(no: &NoSuchMarker, marker: Option<&str>, file: &str) -> Failure {
    let failure =
        Failure::new(format!("no annotation is called '{}'", marker.unwrap_or_default())).at(file);
    match no.known.as_slice() {
        [] => failure.hint("the file has no annotations; leave --marker out"),
        known => {
            let names: Vec<&str> = known.iter().take(8).map(String::as_str).collect();
            failure.hint(format!("there are: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

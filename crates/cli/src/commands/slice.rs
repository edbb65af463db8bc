//! `vramwise slice FILE --from N --to M -o OUT`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde::Serialize;
use vramwise_files::slice::{Sliced, slice};
use vramwise_replay::{Recording, VerifyOptions, recorded_under};
use vramwise_trace::{DeviceTrace, Snapshot};
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::text::{counted, grouped, printable};

const EXAMPLES: &str = "\
Examples:
  vramwise slice snapshot.pickle --from 10000 --to 20000 -o part.pickle
  vramwise slice snapshot.pickle --to 4711 -o until-the-peak.pickle

The slice holds events FROM up to, but without, TO, and the segments and blocks behind the last of
them, so that it can be replayed and looked at like any recording. It is widened to whole
operations of the allocator: a request stays with the segment that it took.

Exit status: 0 the file was written, 2 unreadable input, or the state cannot be known.";

/// Cut a part out of a history, with the state at its end.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot, with its history; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// First event of the slice.
    #[arg(long, value_name = "EVENT", default_value = "0", value_parser = event)]
    from: usize,
    /// First event behind the slice; without it, to the end.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    to: Option<usize>,
    /// Bytes that the process was allowed to hold, such as 40GiB; some replays need to know it.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    capacity: Option<u64>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// The report; its keys are a promise to scripts.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    schema: u32,
    file: String,
    device: u32,
    /// `null`: standard output.
    output: Option<String>,
    /// The events of the file that the slice holds: from `from` up to, but without, `to`.
    from: usize,
    to: usize,
    events: usize,
    segments: usize,
    blocks: usize,
    /// Whether the state at the end of the slice is known to the byte.
    exact: bool,
    /// Whether `vramwise replay` reproduces the slice on its own to the byte.
    replays: bool,
    /// Why not, in half a sentence.
    replays_reason: Option<String>,
}

fn event(text: &str) -> Result<usize, String> {
    text.replace(['_', ','], "")
        .parse()
        .map_err(|_| "write the number of an event, such as 5000".to_owned())
}

/// Reads, cuts, writes.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    let product = context.product(false)?;
    let snapshot = input::read(&args.file, context)?;
    let (number, device) = input::device(&snapshot, &args.file, context)?;
    let to = args.to.unwrap_or(device.events.len());
    let options = options(&snapshot, device, args.torch, args.capacity);
    let sliced = cut(&snapshot, &args.file, number, args.from..to, &options)?;
    if !sliced.exact {
        context.warn(&format!(
            "{}: no replay reproduces this history, so that sizes of blocks at the end of the slice are estimates",
            input::shown(&args.file)
        ));
    }
    let content = super::snapshot_bytes(&sliced.snapshot, product.ends_with(".json"))?;
    let device = &sliced.snapshot.devices[number as usize];
    // Its events have other numbers, and changes of settings with them.
    let alone = Recording::verify(
        device,
        &self::options(&sliced.snapshot, device, args.torch, args.capacity),
    );
    let reason = why_not(&alone);
    if let Some(why) = &reason {
        context.warn(&format!("on its own the slice does not replay to the byte: {why}"));
    }
    let report = Report {
        schema: 1,
        file: input::shown(&args.file),
        device: number,
        output: product.name(),
        from: sliced.events.start,
        to: sliced.events.end,
        events: sliced.events.len(),
        segments: device.segments.len(),
        blocks: device.blocks.len(),
        exact: sliced.exact,
        replays: reason.is_none(),
        replays_reason: reason,
    };
    let mut text = format!(
        "{}\nevents {} to {} of device {number} ({}), {} and {} at their end\n",
        printable(&product.name().unwrap_or_else(|| "standard output".to_owned())),
        grouped(report.from as u64),
        grouped(report.to as u64),
        grouped(report.events as u64),
        counted(report.segments as u64, "segment"),
        counted(report.blocks as u64, "block"),
    );
    if sliced.events != (args.from..to) {
        text.push_str("widened to whole operations of the allocator\n");
    }
    context.deliver(&product, &content, &report, &text)?;
    Ok(Status::Fine)
}

/// How the history is to be read for a slice.
pub(crate) fn options(
    snapshot: &Snapshot,
    device: &DeviceTrace,
    torch: Option<TorchVersion>,
    capacity: Option<u64>,
) -> VerifyOptions {
    let version = input::version(torch, snapshot);
    let mut options = recorded_under(snapshot, device, version).verify(version);
    options.limit = capacity;
    options
}

/// The events `range` of a device as a snapshot of their own.
pub(crate) fn cut(
    snapshot: &Snapshot,
    file: &Path,
    number: u32,
    range: Range<usize>,
    options: &VerifyOptions,
) -> Result<Sliced, Failure> {
    let count = snapshot.devices[number as usize].events.len();
    let (from, to) = (range.start, range.end);
    if from > to || to > count {
        return Err(Failure::new(format!(
            "--from {from} --to {to} is no part of the history, which has {}",
            counted(count as u64, "event")
        ))
        .at(input::shown(file)));
    }
    if from == to {
        let hint = if to < count {
            format!("to keep event {to}, write --to {}", to + 1)
        } else {
            format!("the last event is {}", count.saturating_sub(1))
        };
        return Err(Failure::new(format!(
            "the slice would be empty: --to {to} is the first event that is not in it, and --from {to} the first that is"
        ))
        .at(input::shown(file))
        .hint(hint));
    }
    slice(snapshot, number, range, options).map_err(|why| {
        Failure::new(format!("the state behind event {to} is not known: {why}"))
            .at(input::shown(file))
            .hint("without --to, the slice ends in the state that the file shows")
    })
}

/// Why a slice cannot be reproduced from what it holds, although the whole could.
fn why_not(recording: &Recording) -> Option<String> {
    if recording.requests_only {
        return Some(
            "it was recorded under vramwise's allocator, so that only its requests are replayed"
                .to_owned(),
        );
    }
    if let Some(divergence) = &recording.first_divergence {
        return Some(format!(
            "what was before it (private pools, address ranges) decides its event {}",
            divergence.event
        ));
    }
    recording.final_difference.clone()
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<Report>()
}

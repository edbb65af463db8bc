//! `vramwise convert FILE --to FORMAT -o OUT`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ValueEnum, ValueHint};
use serde::Serialize;
use vramwise_analyze::peak::{self, At, Options};
use vramwise_files::convert::{TableKind, folded, table, write_csv, write_parquet, write_perfetto};
use vramwise_replay::recorded_under;
use vramwise_trace::Snapshot;
use vramwise_types::{Human, TorchVersion};

use super::inspect::refused;
use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::text::{counted, grouped, printable};

const EXAMPLES: &str = "\
Examples:
  vramwise convert old.pickle --to pickle4 -o new.pickle
      A pickle of protocol 4 in the layout of PyTorch 2.11: its own viewer opens it.
  vramwise convert snapshot.pickle --to perfetto -o trace.json
      Counters, the largest blocks and annotations, for ui.perfetto.dev and chrome://tracing.
  vramwise convert snapshot.pickle --to folded | flamegraph.pl --countname bytes > peak.svg
      Who held the memory at the peak, as folded stacks.
  vramwise convert snapshot.pickle --to parquet --table blocks -o blocks.parquet

Exit status: 0 the file was written, 2 unreadable input or wrong usage.";

/// Convert a snapshot for other programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Format to write.
    #[arg(long, value_name = "FORMAT", value_enum)]
    to: Format,
    /// Which table parquet and csv hold; without it, the events.
    #[arg(long, value_name = "TABLE", value_enum)]
    table: Option<Which>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// `--to`. Its values have no text of their own, which would make the help page longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Pickle4,
    Json,
    Perfetto,
    Folded,
    Parquet,
    Csv,
}

/// `--table`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Which {
    #[default]
    Events,
    Blocks,
    Segments,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Pickle4 => "pickle4",
            Format::Json => "json",
            Format::Perfetto => "perfetto",
            Format::Folded => "folded",
            Format::Parquet => "parquet",
            Format::Csv => "csv",
        }
    }
}

/// The report; its keys are a promise to scripts.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    schema: u32,
    file: String,
    /// `null`: standard output.
    output: Option<String>,
    to: &'static str,
    /// Bytes of the file that was written.
    output_bytes: usize,
    /// Rows of the table (`parquet`, `csv`), else `null`.
    rows: Option<usize>,
    /// What the folded stacks are of, else `null`.
    folded: Option<FoldedReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FoldedReport {
    device: u32,
    /// The event of the peak; `null`: the end.
    event: Option<usize>,
    allocated_bytes: u64,
    /// Whether the sizes are known to the byte.
    exact: bool,
}

/// Reads, converts, writes.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    if args.table.is_some() && !matches!(args.to, Format::Parquet | Format::Csv) {
        return Err(Failure::new(format!("--to {} has no tables", args.to.name()))
            .hint("--table is for parquet and csv"));
    }
    let binary = matches!(args.to, Format::Pickle4 | Format::Parquet);
    let product = context.product(!binary)?;
    let mut snapshot = input::read(&args.file, context)?;
    if let Some(number) = context.global.device {
        keep_device(Arc::make_mut(&mut snapshot), number, args)?;
    }
    let mut rows = None;
    let mut stacks = None;
    let mut content = Vec::new();
    let failed = |error: std::io::Error| Failure::from_error(&error).about("converting");
    match args.to {
        Format::Pickle4 => content = super::snapshot_bytes(&snapshot, false)?,
        Format::Json => content = super::snapshot_bytes(&snapshot, true)?,
        Format::Perfetto => write_perfetto(&snapshot, &mut content).map_err(failed)?,
        Format::Folded => {
            let (text, report) = peak_stacks(&snapshot, args, context)?;
            content = text.into_bytes();
            stacks = Some(report);
        }
        Format::Parquet | Format::Csv => {
            let kind = match args.table.unwrap_or_default() {
                Which::Events => TableKind::Events,
                Which::Blocks => TableKind::Blocks,
                Which::Segments => TableKind::Segments,
            };
            let table = table(&snapshot, kind, context.global.device);
            rows = Some(table.rows());
            if args.to == Format::Csv {
                write_csv(&table, &mut content).map_err(failed)?;
            } else {
                write_parquet(&table, &mut content).map_err(failed)?;
            }
        }
    }
    let name = product.name().unwrap_or_else(|| "standard output".to_owned());
    let mut text = format!("{}  {}", printable(&name), Human(content.len() as u64));
    if let Some(rows) = rows {
        text.push_str(&format!(", {}", counted(rows as u64, "row")));
    }
    if let Some(stacks) = &stacks {
        let when = stacks.event.map_or("at the end".to_owned(), |event| {
            format!("at the peak (event {})", grouped(event as u64))
        });
        text.push_str(&format!(
            ", {} allocated on device {} {when}",
            Human(stacks.allocated_bytes),
            stacks.device
        ));
    }
    text.push('\n');
    let report = Report {
        schema: 1,
        file: input::shown(&args.file),
        output: product.name(),
        to: args.to.name(),
        output_bytes: content.len(),
        rows,
        folded: stacks,
    };
    context.deliver(&product, &content, &report, &text)?;
    Ok(Status::Fine)
}

/// Empties the other devices, so that this one keeps its number.
fn keep_device(snapshot: &mut Snapshot, number: u32, args: &Args) -> Result<(), Failure> {
    let count = snapshot.devices.len();
    if number as usize >= count {
        return Err(Failure::new(format!("there is no device {number}: the file has {count}"))
            .at(input::shown(&args.file)));
    }
    for (i, device) in snapshot.devices.iter_mut().enumerate() {
        if i != number as usize {
            *device = vramwise_trace::DeviceTrace::default();
        }
    }
    Ok(())
}

fn peak_stacks(
    snapshot: &Snapshot,
    args: &Args,
    context: &Context,
) -> Result<(String, FoldedReport), Failure> {
    let file = input::shown(&args.file);
    let version = input::version(args.torch, snapshot);
    let options = Options { at: At::Peak, device: context.global.device, ..Options::new(version) };
    let inspection = peak::inspect(snapshot, &options).map_err(|why| refused(&why, &file))?;
    let highest = inspection
        .devices
        .iter()
        .max_by_key(|d| (d.memory.allocated.bytes, std::cmp::Reverse(d.device)));
    let Some(highest) = highest else {
        return Err(Failure::new("there is no memory to show").at(file));
    };
    if inspection.devices.len() > 1 {
        context.warn(&format!(
            "{file}: device {} is shown, which held most; choose another with --device",
            highest.device
        ));
    }
    let device = &snapshot.devices[highest.device as usize];
    let verify = recorded_under(snapshot, device, version).verify(version);
    let event = highest.memory.when.event;
    let stacks = folded(snapshot, highest.device, event, &verify).map_err(|why| {
        Failure::new(format!("the memory at the peak is not known: {why}")).at(file.clone())
    })?;
    if !stacks.exact {
        context.warn(&format!(
            "{file}: no replay reproduces this history, so that sizes of blocks are estimates"
        ));
    }
    let report = FoldedReport {
        device: highest.device,
        event,
        allocated_bytes: stacks.bytes,
        exact: stacks.exact,
    };
    Ok((stacks.text, report))
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<Report>()
}

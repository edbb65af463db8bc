//! `vramwise ranks DIR`: one table over the files of many ranks.

mod json;
mod text;

use std::path::{Path, PathBuf};

use clap::ValueHint;
use vramwise_analyze::figures::{Figures, figures};
use vramwise_analyze::peak::Options;
use vramwise_trace::RankName;
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::several;

const EXAMPLES: &str = "\
Examples:
  vramwise ranks memory_snapshot/
  vramwise ranks memory_snapshot/iteration_20/ --json
  vramwise ranks rank*.pickle

Ranks and steps are read from the files' names, as torchtitan, Megatron-Bridge, Composer and others
write them (rank3_memory_snapshot.pickle, snapshot_oom_rank-3.pickle, rank3.20.memory_snapshot);
folders inside are looked into. A rank stands out where a peak is more than 5 % away from the
median of its step and more than four times as far as is usual there.

Exit status: 0 the report was written, 1 some files cannot be read, 2 none can, or wrong usage.";

/// Compare the memory of many ranks, and say which stand out.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directories with one file a rank, or the files.
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the files look like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// One device of one file.
struct Row {
    file: String,
    name: RankName,
    settings: Option<String>,
    figures: Figures,
}

/// Reads all files and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        let found = vramwise_trace::list_inputs_below(path)
            .map_err(|error| Failure::io("read", path, &error))?;
        if found.is_empty() {
            return Err(Failure::new("there is no snapshot in the directory")
                .at(input::shown(path))
                .hint("snapshots end in .pickle, .pkl, .json or .memory_snapshot, with .gz or .zst behind it or not"));
        }
        files.extend(found);
    }
    let files = several::once(files, context);
    context.protect(&files)?;
    let several = several::each(&files, context, |file| read(file, args, context))?;
    let mut rows: Vec<Row> = several.read.into_iter().flatten().collect();
    rows.sort_by_key(|r| (r.name.step, r.name.rank, r.figures.device));
    let all = several.unreadable.is_empty();
    let report = json::Report::new(&rows, several.unreadable);
    context.answer(&report, || text::render(&report, context))?;
    Ok(if all { Status::Fine } else { Status::Finding })
}

fn read(path: &Path, args: &Args, context: &Context) -> Result<Vec<Row>, Failure> {
    let snapshot = input::read(path, context)?;
    let options = Options {
        device: context.global.device,
        ..Options::new(input::version(args.torch, &snapshot))
    };
    let file = input::shown(path);
    let devices =
        figures(&snapshot, &options).map_err(|why| super::inspect::refused(&why, &file))?;
    let row = |figures| Row {
        file: file.clone(),
        name: RankName::of(path),
        settings: snapshot.settings.as_ref().map(|s| s.conf.clone()),
        figures,
    };
    Ok(devices.into_iter().map(row).collect())
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

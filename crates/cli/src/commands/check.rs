//! `vramwise check FILE...`: budgets for continuous integration.

mod gates;
mod json;
mod junit;
mod markdown;
mod text;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use vramwise_analyze::figures::figures;
use vramwise_analyze::leaks;
use vramwise_analyze::peak::Options;
use vramwise_types::TorchVersion;

use super::{inspect, leaks::no_such_marker};
use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::several;
use gates::{Limits, Measured, Percent, Verdict};

const EXAMPLES: &str = "\
Examples:
  vramwise check snapshot.pickle --max-peak-reserved 20GiB --max-fragmentation 10%
  vramwise check new.pickle --baseline main.pickle --max-regression 2%
  vramwise check rank*.pickle --max-peak-allocated 70GiB --junit memory.xml
  vramwise check snapshot.pickle --max-growth-per-step 0

A limit is exceeded only by more than it. What cannot be checked does not pass: a file that cannot
be read, one without a history or with figures that cannot be right, growth in fewer than four
steps, a peak that is only known as a lower bound (the recording began in mid-run) which is within
the limit.
Fragmentation is the share of reserved memory that no block used when most was reserved.
Growth is what vramwise leaks finds.

Where GITHUB_STEP_SUMMARY is set, a table is appended to the file that it names.

Exit status: 0 within all limits, 1 not, or not all could be checked (the report says why),
2 no file can be read, or wrong usage.";

/// Hold a program's memory against budgets, for continuous integration.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Snapshots with their histories; a directory means all in it.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    /// Most bytes that the allocator may have held, such as 20GiB.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    max_peak_reserved: Option<u64>,
    /// Most bytes that the program may have held in blocks.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    max_peak_allocated: Option<u64>,
    /// Largest share of reserved memory that may have been unused when most was reserved.
    #[arg(long, value_name = "PERCENT", value_parser = gates::share)]
    max_fragmentation: Option<Percent>,
    /// Most bytes that leaks may add in every step, together; 0 = nothing may leak.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    max_growth_per_step: Option<u64>,
    /// Annotation that ends each step, for --max-growth-per-step.
    #[arg(long, value_name = "NAME", requires = "max_growth_per_step", value_parser = crate::args::marker)]
    marker: Option<String>,
    /// An older snapshot, or a directory with files of the same names, to compare the peaks with.
    #[arg(long, value_name = "OLD", value_hint = ValueHint::AnyPath)]
    baseline: Option<PathBuf>,
    /// How much higher than the baseline's the peaks may be.
    #[arg(long, value_name = "PERCENT", default_value = "2%", requires = "baseline")]
    max_regression: Percent,
    /// Write the checks as JUnit XML.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Write the table as Markdown.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    markdown: Option<PathBuf>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the files look like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// Checks and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let limits = Limits {
        peak_reserved: args.max_peak_reserved,
        peak_allocated: args.max_peak_allocated,
        fragmentation: args.max_fragmentation,
        growth: args.max_growth_per_step,
        regression: args.baseline.as_ref().map(|_| args.max_regression),
    };
    if limits.is_empty() {
        return Err(Failure::new("there is nothing to check").hint(
            "give a limit, such as --max-peak-reserved 20GiB, or a --baseline to compare with",
        ));
    }
    let files = several::once(input::expand(&args.files)?, context);
    let baselines = baselines(args, &files)?;
    let inputs = || files.iter().chain(baselines.iter().flatten());
    context.protect(inputs())?;
    let output = |path: &Option<PathBuf>| -> Result<_, Failure> {
        let destination = path.as_ref().map(|path| context.destination(path)).transpose()?;
        if let Some(destination) = &destination {
            destination.distinct_from(inputs().map(PathBuf::as_path))?;
        }
        Ok(destination)
    };
    if let (Some(junit), Some(markdown)) = (&args.junit, &args.markdown)
        && std::path::absolute(junit).ok() == std::path::absolute(markdown).ok()
    {
        return Err(Failure::new("--junit and --markdown name the same file")
            .at(junit.display().to_string())
            .hint("choose another name for one of them"));
    }
    let (junit, markdown) = (output(&args.junit)?, output(&args.markdown)?);
    let mut baselines = baselines.iter();
    let several = several::each(&files, context, |file| {
        let baseline = baselines.next().and_then(Option::as_deref);
        let now = measure(file, args, limits.growth.is_some(), context)?;
        let old = baseline.map(|path| measure(path, args, false, context)).transpose()?;
        let old = old.unwrap_or_default();
        let device = |measured| gates::check(&input::shown(file), measured, &old, &limits);
        Ok(now.iter().flat_map(device).collect::<Vec<Verdict>>())
    })?;
    let unreadable = several.unreadable;
    let verdicts: Vec<Verdict> = several.read.into_iter().flatten().collect();
    let failed = !unreadable.is_empty() || verdicts.iter().any(|v| !v.passed());
    if let Some(destination) = junit {
        destination.write(junit::render(&verdicts, &unreadable).as_bytes())?;
        context.wrote(destination.path());
    }
    let table = markdown::render(&verdicts, &unreadable);
    if let Some(destination) = markdown {
        destination.write(table.as_bytes())?;
        context.wrote(destination.path());
    }
    context.answer(&json::Report::new(&verdicts, &unreadable), || {
        text::render(&verdicts, &unreadable, context)
    })?;
    // Last, since the report must not be lost to a summary that cannot be written.
    if let Some(summary) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|name| !name.is_empty()) {
        append(Path::new(&summary), &table)?;
    }
    Ok(if failed { Status::Finding } else { Status::Fine })
}

/// The devices of a file, with what grows on them where that is asked for.
fn measure(
    path: &Path,
    args: &Args,
    with_growth: bool,
    context: &Context,
) -> Result<Vec<Measured>, Failure> {
    let snapshot = input::read(path, context)?;
    let version = input::version(args.torch, &snapshot);
    let device = context.global.device;
    let options = Options { device, ..Options::new(version) };
    let file = input::shown(path);
    let figures = figures(&snapshot, &options).map_err(|why| inspect::refused(&why, &file))?;
    let mut growth = Vec::new();
    if with_growth {
        let marker = args.marker.clone();
        let options = leaks::Options { device, marker, ..leaks::Options::default() };
        growth = leaks::find(&snapshot, &options)
            .map_err(|no| no_such_marker(&no, args.marker.as_deref(), &file))?;
    }
    let measured = figures.into_iter().map(|figures| {
        let growth = growth.iter().find(|d| d.device == figures.device).cloned();
        Measured { figures, growth }
    });
    Ok(measured.collect())
}

/// The file that each file is compared with.
fn baselines(args: &Args, files: &[PathBuf]) -> Result<Vec<Option<PathBuf>>, Failure> {
    let Some(old) = &args.baseline else { return Ok(vec![None; files.len()]) };
    if !old.is_dir() {
        return Ok(vec![Some(old.clone()); files.len()]);
    }
    let of = |file: &PathBuf| {
        let name = file.file_name().unwrap_or(file.as_os_str());
        let path = old.join(name);
        if path.is_file() {
            return Ok(Some(path));
        }
        Err(Failure::new(format!("the baseline has no {}", Path::new(name).display()))
            .at(input::shown(old))
            .hint("files are compared with those of the same name"))
    };
    files.iter().map(of).collect()
}

/// The summary of a workflow's step belongs to all its commands: what is there is kept.
fn append(path: &Path, table: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(table.as_bytes()))
        .map_err(|error| Failure::io("append to", path, &error).at("GITHUB_STEP_SUMMARY"))
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report<'static>>()
}

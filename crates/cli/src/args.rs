//! The command line's grammar: global options and the list of commands.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use vramwise_types::{ParseVersionError, TorchVersion};

use crate::commands::{
    check, completions, convert, devices, diff, explain, fit, inspect, leaks, man, probe, ranks,
    redact, rehearse, replay, run, slice, tune, validate,
};
use crate::style::ColourChoice;

const ABOUT: &str = "See, replay and tune the GPU memory of PyTorch programs, without a GPU";

const EXAMPLES: &str = "\
Examples:
  vramwise validate snapshot.pickle       what is in it, and can it be replayed
  vramwise inspect snapshot.pickle        who held the memory at its peak
  vramwise replay snapshot.pickle         does the model reproduce it exactly
  vramwise tune snapshot.pickle           the best allocator settings for this program
  vramwise explain train.log              why did it run out of memory, and what would help
  vramwise leaks snapshot.pickle          what grows from step to step
  vramwise rehearse --gpu rtx4090 -- python train.py
                                          will it fit on that card; it need not be there
  vramwise fit --gpu rtx4090 --vary batch=1..512 -- python train.py --batch {batch}
                                          the largest batch that fits
  vramwise run -- python train.py         the same program in less GPU memory

A snapshot is what torch.cuda.memory._dump_snapshot() writes. Reading one never runs code from it,
no command uses the network, and none but run and probe needs a GPU.

Exit status: 0 fine, 1 a finding (such as a divergence), 2 wrong usage or unreadable input.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "vramwise", version, about = ABOUT, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print the report as JSON ("schema": 1) instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Write the report to this file instead of standard output.
    #[arg(short, long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite files that exist.
    #[arg(short, long, global = true)]
    pub(crate) force: bool,
    /// Number of the device, where a snapshot has several.
    #[arg(long, global = true, value_name = "N")]
    pub(crate) device: Option<u32>,
    /// Rows in tables.
    #[arg(long, global = true, value_name = "N", default_value_t = 10, value_parser = rows)]
    pub(crate) top: usize,
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long = "color", global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) colour: ColourChoice,
    /// No progress and no warnings on standard error.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say on standard error what is being done; twice for more.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Validate(validate::Args),
    Replay(replay::Args),
    Tune(tune::Args),
    Inspect(inspect::Args),
    Diff(diff::Args),
    Check(check::Args),
    Ranks(ranks::Args),
    Redact(redact::Args),
    Slice(slice::Args),
    Convert(convert::Args),
    Explain(explain::Args),
    Leaks(leaks::Args),
    Rehearse(rehearse::Args),
    Fit(fit::Args),
    Run(run::Args),
    Devices(devices::Args),
    Probe(probe::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Reads `40GiB`; for clap.
pub(crate) fn size(text: &str) -> Result<u64, vramwise_types::ParseSizeError> {
    vramwise_types::parse_size(text)
}

/// Reads a number of rows; for clap.
fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a table of no rows says nothing; write 1 or more".to_owned()),
        Ok(rows) => Ok(rows),
        Err(_) => Err("write how many rows, such as 20".to_owned()),
    }
}

/// Reads a number of frames; for clap.
pub(crate) fn frames(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("no frames name no place; write 1 or more".to_owned()),
        Ok(frames) => Ok(frames),
        Err(_) => Err("write how many frames, such as 3".to_owned()),
    }
}

/// Reads the name of an annotation; for clap.
pub(crate) fn marker(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "an empty name is part of every name; write one, or leave the option out".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// Reads a number of variations; for clap.
pub(crate) fn variations(text: &str) -> Result<u32, String> {
    const MOST: u32 = 10_000;
    match text.parse::<u64>() {
        Ok(number) => u32::try_from(number)
            .ok()
            .filter(|n| *n <= MOST)
            .ok_or_else(|| format!("at most {MOST} variations are tried; a few dozen tell enough")),
        Err(_) => Err("write how many variations, such as 20".to_owned()),
    }
}

/// Reads the memory of a card; for clap.
pub(crate) fn card(text: &str) -> Result<u64, String> {
    let bytes = vramwise_types::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < vramwise_types::GIB {
        return Err("no card has less than 1GiB".to_owned());
    }
    Ok(bytes)
}

/// Reads a time such as `90s`, `10m` or `1h`; for clap.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => 0,
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    match number {
        Some(seconds) if seconds > 0 => Ok(std::time::Duration::from_secs(seconds)),
        _ => Err("write a time such as 90s, 10m or 1h".to_owned()),
    }
}

/// Reads a PyTorch version that the model covers; for clap.
pub(crate) fn torch(text: &str) -> Result<TorchVersion, String> {
    let version: TorchVersion =
        text.parse().map_err(|error: ParseVersionError| error.to_string())?;
    if version.major == 2 && version.minor < 30 {
        Ok(version)
    } else {
        Err(format!(
            "there is no model of PyTorch {version}: it covers the releases from 2.0 on, up to the \
             last of 2.x; write it like 2.11"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn what_says_nothing_or_too_much_is_refused() {
        assert!(marker("").is_err() && marker(" ").is_err() && marker("step").is_ok());
        assert_eq!((variations("0"), variations("10000")), (Ok(0), Ok(10_000)));
        assert!(variations("1000000000").is_err_and(|why| why.contains("10000")));
        assert!(variations("99999999999999").is_err() && variations("-1").is_err());
    }

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!((seconds("90"), seconds("10m"), seconds("1h")), (Ok(90), Ok(600), Ok(3600)));
        assert!(seconds("0s").is_err() && seconds("m").is_err() && seconds("3 weeks").is_err());
    }

    #[test]
    fn a_table_has_at_least_a_row() {
        assert_eq!(rows("1"), Ok(1));
        assert!(rows("0").is_err() && rows("-1").is_err() && rows("ten").is_err());
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            assert!(help.contains(&format!("vramwise {name}")), "{name} has no example");
        }
    }
}

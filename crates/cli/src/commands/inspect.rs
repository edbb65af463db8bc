//! `vramwise inspect FILE`.

mod json;
pub(super) mod rules;
mod text;

use std::path::PathBuf;

use clap::{ValueEnum, ValueHint};
use vramwise_analyze::peak::{self, At, By, Options, Refusal};
use vramwise_types::TorchVersion;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

const EXAMPLES: &str = r#"Examples:
  vramwise inspect snapshot.pickle
      When most memory was allocated, and which lines of the program held it.
  vramwise inspect snapshot.pickle --at end --by pool
      What was there when the snapshot was taken, by pool.
  vramwise inspect snapshot.pickle --at 5000 --frames 3
      What was there after event 5000, told apart by three lines of the call chain.
  vramwise inspect snapshot.pickle --by category -v
      Parameters, gradients, optimizer state, activations: with the rule that decided for each.
  vramwise inspect snapshot.pickle --from 20000 --to 40000
      The peak within a part of the history.
  vramwise inspect snapshot.pickle --rules rules.toml
      Your own categories first. A rule names a category and what must hold:
      [[rule]]  category = "kv cache"  frame = "cache_utils.py"  min_size = "1MiB"
      (also: annotation = "part of a name", max_size; each on a line of its own)

Frames of installed packages, of Python itself and of C++ are passed over: a block is put down
to the innermost line of the user's own code.

Exit status: 0 the report was written, 2 unreadable input or wrong usage."#;

/// Say where the memory went: peaks, who held them, what was wasted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Moment to look at: peak (of allocated memory), end, or after the operation of this event.
    #[arg(long, value_name = "EVENT|peak|end", default_value = "peak", value_parser = moment)]
    at: At,
    /// How the blocks are grouped.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    by: Grouping,
    /// Look for peaks from this event on.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    from: Option<usize>,
    /// Look for peaks up to this event.
    #[arg(long, value_name = "EVENT", value_parser = event)]
    to: Option<usize>,
    /// TOML file with rules for categories of your own.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Frames of the user's own code that tell two stacks apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::frames)]
    frames: usize,
    /// Bytes that the process was allowed to hold, such as 40GiB; some replays need to know it.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::args::size)]
    capacity: Option<u64>,
    /// PyTorch version whose allocator is meant, such as 2.8; without it, what the file looks like.
    #[arg(long, value_name = "VERSION", value_parser = crate::args::torch)]
    torch: Option<TorchVersion>,
}

/// `--by`. Its values have no text of their own, which would make the help page longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Grouping {
    #[default]
    Stack,
    Module,
    Stream,
    Pool,
    Size,
    Category,
    Phase,
}

impl Grouping {
    pub(super) fn by(self) -> By {
        match self {
            Grouping::Stack => By::Stack,
            Grouping::Module => By::Module,
            Grouping::Stream => By::Stream,
            Grouping::Pool => By::Pool,
            Grouping::Size => By::Size,
            Grouping::Category => By::Category,
            Grouping::Phase => By::Phase,
        }
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Grouping::Stack => "stack",
            Grouping::Module => "module",
            Grouping::Stream => "stream",
            Grouping::Pool => "pool",
            Grouping::Size => "size",
            Grouping::Category => "category",
            Grouping::Phase => "phase",
        }
    }
}

fn moment(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        number => match event(number) {
            Ok(event) => Ok(At::Event(event)),
            Err(_) => Err("write peak, end or the number of an event, such as 5000".to_owned()),
        },
    }
}

fn event(text: &str) -> Result<usize, String> {
    let digits = text.replace(['_', ','], "");
    digits.parse().map_err(|_| "write the number of an event, such as 5000".to_owned())
}

/// Reads the file, looks at every device and reports.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect(std::iter::once(&args.file).chain(&args.rules))?;
    let rules = args.rules.as_deref().map(rules::read).transpose()?.unwrap_or_default();
    let snapshot = input::read(&args.file, context)?;
    let version = input::version(args.torch, &snapshot);
    let options = Options {
        device: context.global.device,
        capacity: args.capacity,
        at: args.at,
        by: args.by.by(),
        frames: args.frames,
        from: args.from,
        to: args.to,
        rules,
        rules_shown: context.global.verbose > 0,
        ..Options::new(version)
    };
    let file = input::shown(&args.file);
    let inspection = peak::inspect(&snapshot, &options).map_err(|why| refused(&why, &file))?;
    let report = json::Report::new(&file, version, args.by.name(), &inspection, context.global.top);
    context.answer(&report, || text::render(&report, context))?;
    Ok(Status::Fine)
}

pub(super) fn refused(why: &Refusal, file: &str) -> Failure {
    let failure = match why {
        Refusal::NoDevice(number, count) => {
            Failure::new(format!("there is no device {number}: the file has {count}"))
                .hint("vramwise validate lists the devices of a file")
        }
        Refusal::Nothing => Failure::new(format!(
            "{file}: there is nothing to inspect: no segments and no history"
        ))
        .hint(
            "call torch.cuda.memory._record_memory_history(max_entries=1_000_000) at the start \
                 of the program, and torch.cuda.memory._dump_snapshot() while memory is in use",
        ),
        Refusal::NoEvent(event, 0) => {
            Failure::new(format!("--at names event {event}, but the file has no history"))
                .hint("--at end shows the state when the snapshot was taken")
        }
        Refusal::NoEvent(event, count) => Failure::new(format!(
            "there is no event {event}: the history has {count} (0 to {})",
            count - 1
        )),
        Refusal::Backwards(from, to) => {
            Failure::new(format!("--from {from} comes after --to {to}"))
        }
    };
    failure.at(file)
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<json::Report>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_word_or_an_event() {
        assert_eq!(moment("peak"), Ok(At::Peak));
        assert_eq!(moment("end"), Ok(At::End));
        assert_eq!(moment("5_000"), Ok(At::Event(5000)));
        assert!(moment("-1").is_err() && moment("noon").is_err() && moment("").is_err());
    }
}

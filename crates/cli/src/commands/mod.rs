//! One file a command: its arguments, its work, its report.

pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod inspect;
pub(crate) mod leaks;
pub(crate) mod man;
pub(crate) mod rehearse;
pub(crate) mod replay;
pub(crate) mod tune;
pub(crate) mod validate;

use crate::Status;
use crate::args::Command;
use crate::context::Context;
use crate::failure::Failure;

/// Runs one command.
pub(crate) fn run(command: Command, context: &Context) -> Result<Status, Failure> {
    match command {
        Command::Validate(args) => validate::run(&args, context),
        Command::Replay(args) => replay::run(&args, context),
        Command::Tune(args) => tune::run(&args, context),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::Explain(args) => explain::run(&args, context),
        Command::Leaks(args) => leaks::run(&args, context),
        Command::Rehearse(args) => rehearse::run(&args, context),
        Command::Fit(args) => fit::run(&args, context),
        Command::Devices(args) => devices::run(&args, context),
        Command::Completions(args) => completions::run(&args, context),
        Command::Man(args) => man::run(&args, context),
    }
}

//! One file a command: its arguments, its work, its report.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod inspect;
pub(crate) mod leaks;
pub(crate) mod man;
pub(crate) mod probe;
pub(crate) mod ranks;
pub(crate) mod redact;
pub(crate) mod rehearse;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod slice;
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
        Command::Diff(args) => diff::run(&args, context),
        Command::Check(args) => check::run(&args, context),
        Command::Ranks(args) => ranks::run(&args, context),
        Command::Redact(args) => redact::run(&args, context),
        Command::Slice(args) => slice::run(&args, context),
        Command::Convert(args) => convert::run(&args, context),
        Command::Explain(args) => explain::run(&args, context),
        Command::Leaks(args) => leaks::run(&args, context),
        Command::Rehearse(args) => rehearse::run(&args, context),
        Command::Run(args) => run::run(&args, context),
        Command::Fit(args) => fit::run(&args, context),
        Command::Devices(args) => devices::run(&args, context),
        Command::Probe(args) => probe::run(&args, context),
        Command::Completions(args) => completions::run(&args, context),
        Command::Man(args) => man::run(&args, context),
    }
}

/// A snapshot as a file: a pickle of protocol 4, or JSON.
fn snapshot_bytes(snapshot: &vramwise_trace::Snapshot, json: bool) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let written = if json {
        vramwise_trace::write_json(snapshot, &mut bytes)
    } else {
        vramwise_trace::write_pickle(snapshot, &mut bytes)
    };
    written.map_err(|error| Failure::from_error(&error))?;
    Ok(bytes)
}

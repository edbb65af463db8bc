//! The `vramwise` command line: arguments in, one report out, an exit status.
//!
//! One file a subcommand under `commands`; each reads its input, asks the libraries below, and
//! hands a report to its context. The report goes to standard output or to the file of `-o`,
//! everything else (progress, notes, errors) to standard error. This crate is the only one that
//! prints, looks at the terminal, or decides an exit status:
//!
//! | status | meaning |
//! | --- | --- |
//! | 0 | fine |
//! | 1 | a finding, such as a divergence or a program that does not fit |
//! | 2 | wrong usage, or input that cannot be read |
//! | 130 | interrupted |
//! | other | `rehearse` passes on the status of a program that failed by itself; `run` becomes the program |
//!
//! [`embed`] has the same commands for programs that want the report instead.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod destination;
pub mod embed;
mod failure;
mod figures;
mod input;
mod plot;
mod progress;
#[cfg(test)]
mod schema;
mod several;
mod stacks;
mod style;
mod table;
mod text;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::failure::Kind;
use crate::style::Style;

/// What a command found, as far as the exit status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing to complain of.
    Fine,
    /// Something that a script should stop at.
    Finding,
    /// A program that was run failed by itself, with this status.
    Child(u8),
}

/// Runs the command line `args` (the first of which is the program's name).
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version are no errors; clap sends them to standard output itself. Where that
            // is closed there is nobody left to tell.
            let _ = usage.print();
            return if usage.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let colour = cli.global.colour;
    if let Command::Rehearse(args) = &mut cli.command {
        // A rehearsal leaves more than a report: there, -o names a directory.
        args.directory = cli.global.output.take();
    }
    match Context::new(cli.global).and_then(|context| commands::run(cli.command, &context)) {
        Ok(Status::Fine) => ExitCode::SUCCESS,
        Ok(Status::Finding) => ExitCode::from(1),
        Ok(Status::Child(status)) => ExitCode::from(status),
        Err(failure) => {
            let style = Style::new(colour, io::stderr().is_terminal());
            // A closed standard error leaves only the status to tell it.
            let _ = io::stderr().write_all(failure.render(style).as_bytes());
            // As shells have it for a program that an interrupt ended.
            ExitCode::from(if *failure.what_kind() == Kind::Stopped { 130 } else { 2 })
        }
    }
}

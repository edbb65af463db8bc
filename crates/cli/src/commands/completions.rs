//! `vramwise completions SHELL`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Status;
use crate::args::Cli;
use crate::context::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  vramwise completions bash -o ~/.local/share/bash-completion/completions/vramwise
  vramwise completions zsh > \"${fpath[1]}/_vramwise\"";

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vramwise", &mut script);
    context.report(&String::from_utf8_lossy(&script))?;
    Ok(Status::Fine)
}

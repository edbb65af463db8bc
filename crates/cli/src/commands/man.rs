//! `vramwise man [COMMAND]`.

use clap::CommandFactory as _;

use crate::Status;
use crate::args::Cli;
use crate::context::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  vramwise man | man -l -
  vramwise man tune -o ~/.local/share/man/man1/vramwise-tune.1";

/// Print the manual page of vramwise or of one command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command; without it, the page of vramwise itself.
    command: Option<String>,
}

/// Prints the page in roff.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    // Building hands the global options down to the commands, so that their pages list them.
    let mut cli = Cli::command();
    cli.build();
    let page = match &args.command {
        None => cli,
        Some(name) => {
            let found = cli.get_subcommands().find(|c| c.get_name() == name);
            let Some(command) = found else {
                let names: Vec<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
                return Err(Failure::new(format!("there is no command '{name}'"))
                    .hint(format!("the commands are {}", names.join(", "))));
            };
            // The page's title is the words that run the command, joined as pages usually are.
            command.clone().display_name(format!("vramwise-{name}"))
        }
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut roff)
        .map_err(|error| Failure::new(format!("cannot write the manual page: {error}")))?;
    context.report(&String::from_utf8_lossy(&roff))?;
    Ok(Status::Fine)
}

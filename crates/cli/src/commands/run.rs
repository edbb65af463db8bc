//! `vramwise run -- COMMAND`.

mod bootstrap;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  vramwise run -- python train.py --batch 32
      The same program, with vramwise's allocator in the place of PyTorch's.
  vramwise run --report -- torchrun --nproc-per-node 2 train.py
      In every process that it starts, with a line from each at its end: what was held, what was needed.
  vramwise rehearse --gpu rtx4090 -- vramwise run -- python train.py
      On an emulated GPU.

The program is not changed: the allocator is put into PyTorch at the end of `import torch`. Where it cannot
be, PyTorch's own stays, and standard error gets a line that says why. In a program of one's own, the same is
vramwise.install_allocator().

Exit status: that of the program; 2 it could not be started.";

/// What the package looks for at the end of `import torch`.
const VARIABLE: &str = "VRAMWISE_ALLOCATOR";

/// Run a program with vramwise's GPU allocator
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Settings of the allocator, on top of PYTORCH_CUDA_ALLOC_CONF.
    #[arg(long, value_name = "SETTINGS")]
    settings: Option<String>,
    /// At its end, each process says what it held at its peak and what it had asked for.
    #[arg(long)]
    report: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Becomes the program.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::new("there is no program to run"));
    };
    if context.global.json || context.global.output.is_some() {
        return Err(Failure::new("`run` becomes the program and writes no report of its own")
            .hint("with --report each process says on standard error what it held; 2> FILE keeps that"));
    }
    let settings = settings(args)?;
    let mut command = Command::new(program);
    command.args(rest);
    match bootstrap::prepare() {
        Ok(bootstrap) => {
            context.note(&format!("bootstrap: {}", bootstrap.display()));
            command.env("PYTHONPATH", python_path(bootstrap)).env(VARIABLE, settings);
            if args.report {
                command.env("VRAMWISE_ALLOCATOR_REPORT", "1");
            }
        }
        Err(failure) => {
            let why = failure.in_one_line();
            context.warn(&format!("PyTorch's own allocator is used: {why}"));
        }
    }
    let error = become_it(command);
    Err(Failure::new(format!("cannot run {}: {error}", program.display())))
}

/// What the variable says: the settings given here, those that it has, or just "yes".
fn settings(args: &Args) -> Result<String, Failure> {
    let switch = |text: &str| {
        ["0", "1", "false", "true", "off", "on", "no", "yes", ""]
            .contains(&text.to_lowercase().as_str())
    };
    if let Some(given) = args.settings.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        if switch(given) {
            return Err(Failure::new(format!("--settings takes settings, not `{given}`"))
                .hint("such as slack:2%,limit:20GiB; without --settings the defaults are used"));
        }
        return Ok(given.to_owned());
    }
    let before = std::env::var(VARIABLE).ok().filter(|text| !switch(text.trim()));
    Ok(before.unwrap_or_else(|| "1".to_owned()))
}

fn python_path(bootstrap: PathBuf) -> OsString {
    let mut path = bootstrap.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

/// Returns only if it fails.
#[cfg(unix)]
fn become_it(mut command: Command) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    command.exec()
}

#[cfg(not(unix))]
fn become_it(_: Command) -> std::io::Error {
    std::io::Error::other("the allocator works on Linux only")
}

//! `vramwise run -- COMMAND`.

mod bootstrap;

use std::ffi::OsString;
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
    let bootstrap = bootstrap::prepare()?;
    context.note(&format!("bootstrap: {}", bootstrap.display()));
    let mut python_path = bootstrap.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        python_path.push(":");
        python_path.push(before);
    }
    let settings = args.settings.as_deref().map_or("", str::trim);
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("PYTHONPATH", python_path)
        .env("VRAMWISE_ALLOCATOR", if settings.is_empty() { "1" } else { settings });
    if args.report {
        command.env("VRAMWISE_ALLOCATOR_REPORT", "1");
    }
    let error = become_it(command);
    Err(Failure::new(format!("cannot run {}: {error}", program.display())))
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

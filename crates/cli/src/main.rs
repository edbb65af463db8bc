//! The `vramwise` program; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    vramwise_cli::run(std::env::args_os())
}

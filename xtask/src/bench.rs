//! `cargo xtask bench`: builds a release and runs the measuring program in `benchmarks/`.

use anyhow::Result;

use crate::shell;

/// Options of `cargo xtask bench`, passed on to the measuring program.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Options of the measuring program; `cargo xtask bench -- --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Measures, prints a table of ratios, and fails if a budget is exceeded.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut cargo = shell::cargo(&["run", "--release", "--package", "vramwise-bench", "--"]);
    shell::run(cargo.args(&args.rest))
}

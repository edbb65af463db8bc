//! `cargo xtask test`: everything that a fresh machine needs to run all tests.

use anyhow::Result;

use crate::{python, shell};

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Only the Rust tests.
    #[arg(long)]
    rust_only: bool,
    /// Install the packages that open converted files, and test with them too.
    #[arg(long)]
    tools: bool,
}

/// Runs unit and integration tests, documentation tests, then what `cargo xtask python` does.
pub(crate) fn run(args: &Args) -> Result<()> {
    if shell::succeeds(&mut shell::cargo(&["nextest", "--version"])) {
        shell::run(&mut shell::cargo(&["nextest", "run", "--workspace", "--no-tests=pass"]))?;
    } else {
        shell::say("cargo-nextest is not installed; using `cargo test`.");
        let targets = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
        shell::run(&mut shell::cargo(&targets))?;
    }
    shell::run(&mut shell::cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]))?;
    if args.rust_only { Ok(()) } else { python::test(args.tools) }
}

//! `cargo xtask ci`: everything that a change must pass, quickest first.

use anyhow::Result;

use crate::{fuzz, shell, test, tidy};

/// Runs all checks and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))?;
    tidy::run()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell::run(&mut shell::cargo(&clippy))?;
    test::run(&test::Args::default())?;
    fuzz::run(&fuzz::Args::default())?;
    shell::say("\nci: every check passed");
    Ok(())
}

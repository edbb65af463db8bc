//! `cargo xtask fuzz`: mutated input for every parser, bounded and repeatable, on stable Rust.
//!
//! The work is done by the program `vramwise-fuzz` in `fuzz/`, built with the test profile so
//! that overflow checks and debug assertions are on.

use anyhow::Result;

use crate::shell;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Inputs per target.
    #[arg(long, default_value_t = Args::default().inputs)]
    inputs: u64,
    /// Seed of the mutations; the same seed gives the same inputs.
    #[arg(long, default_value_t = Args::default().seed)]
    seed: u64,
    /// Only this target; without it, all of them one after the other.
    #[arg(long)]
    target: Option<String>,
    /// Number of the first input, to reproduce a failure.
    #[arg(long, default_value_t = 0)]
    first: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self { inputs: 20_000, seed: 1, target: None, first: 0 }
    }
}

/// Runs every target, and fails at the first input that makes one panic or hang.
pub(crate) fn run(args: &Args) -> Result<()> {
    let package = ["run", "--profile", "test", "--package", "vramwise-fuzz", "--"];
    let mut cargo = shell::cargo(&package);
    cargo.args(["--inputs", &args.inputs.to_string(), "--seed", &args.seed.to_string()]);
    cargo.args(["--first", &args.first.to_string()]);
    if let Some(target) = &args.target {
        cargo.args(["--target", target]);
    }
    shell::run(&mut cargo)
}

//! Development tasks: `cargo xtask test`, `ci`, `tidy`, `bench`, `fuzz`.
//!
//! Every check that a change must pass lives here, so that one command shows what a reviewer or a
//! build machine will see. Nothing here is part of the product, and nothing here needs the network
//! beyond what `cargo` itself fetches.

mod bench;
mod ci;
mod conformance;
mod fuzz;
mod metadata;
mod python;
mod python_env;
mod report_types;
mod shell;
mod test;
mod tidy;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of the vramwise workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests: unit, integration, documentation and Python ones.
    Test(test::Args),
    /// Everything that a change must pass: formatting, clippy, tidy, tests, a bounded fuzz run.
    Ci,
    /// Check the rules of the house that the compiler does not know.
    Tidy,
    /// Measure speed and memory against the budgets, as ratios within one run.
    Bench(bench::Args),
    /// Record programs with the given PyTorch releases on the emulated device; replays must reproduce them.
    Conformance(conformance::Args),
    /// Build the Python package, check its style and types, and run the Python tests against it.
    Python(python::Args),
    /// Write the reports' Python classes from their JSON Schemas.
    ReportTypes,
    /// Build the Python package as a wheel, with the program and its libraries inside, and check it.
    Wheel(wheel::Args),
    /// Feed mutated input to every parser, on stable Rust and for a bounded number of inputs.
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Python(args) => python::test(args.tools),
        Task::ReportTypes => report_types::run(),
        Task::Wheel(args) => wheel::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

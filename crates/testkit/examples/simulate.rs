//! Runs the seeded simulation: `simulate [--seed N] [--seeds COUNT] [--steps M] [--check-every K]`.

use std::io::Write;
use std::process::ExitCode;

use vramwise_testkit::allocator::simulate::simulate;

fn main() -> ExitCode {
    let (mut seed, mut seeds, mut steps, mut check_every) = (1u64, 1u64, 1_000_000, 1);
    let mut args = std::env::args().skip(1);
    let mut out = std::io::stdout().lock();
    while let Some(name) = args.next() {
        let Some(value) = args.next().and_then(|v| v.parse().ok()) else {
            let _ = writeln!(out, "{name} needs a number");
            return ExitCode::from(2);
        };
        match name.as_str() {
            "--seed" => seed = value,
            "--seeds" => seeds = value,
            "--steps" => steps = value,
            "--check-every" => check_every = value,
            _ => {
                let _ = writeln!(out, "{name} is none of --seed, --seeds, --steps, --check-every");
                return ExitCode::from(2);
            }
        }
    }
    for seed in seed..seed.saturating_add(seeds) {
        match simulate(seed, steps, check_every) {
            Ok(summary) => {
                let _ = write!(out, "seed {seed}: {summary}");
            }
            Err(failure) => {
                let _ = write!(out, "{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

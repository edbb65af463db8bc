//! A seeded simulation: random programs under random settings, model against reference.
//!
//! `cargo run -p vramwise-testkit --release --example simulate -- --seed N --steps M` runs millions of
//! operations; the tests of the model run a short one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use vramwise_types::TorchVersion;

use super::lockstep::{Lockstep, Start};
use super::program::{Generator, Op, Traits};
use super::settings::random_config;
use crate::Rng;

/// Operations shown when something is wrong.
const SHOWN: usize = 12;

/// What a simulation met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Summary {
    pub steps: u64,
    pub episodes: u64,
    /// Steps after which segments and invariants were checked too.
    pub checks: u64,
    pub history_entries: u64,
    /// Blocks of the largest state.
    pub most_live_blocks: usize,
    /// How often each rare branch was taken.
    pub branches: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} operations in {} programs, {} full checks, {} history entries, up to {} live blocks",
            self.steps, self.episodes, self.checks, self.history_entries, self.most_live_blocks
        )?;
        for (branch, times) in &self.branches {
            writeln!(f, "  {times:>9}  {branch}")?;
        }
        Ok(())
    }
}

/// Where model and reference parted, or an invariant broke.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Failure {
    pub seed: u64,
    pub episode: u64,
    pub step: u64,
    /// Settings, version and card of the episode.
    pub start: String,
    /// The last operations; the failing one is the last.
    pub operations: Vec<Op>,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} episode {} step {}:", self.seed, self.episode, self.step)?;
        writeln!(f, "{}", self.what)?;
        writeln!(f, "started with {}", self.start)?;
        writeln!(f, "last operations:")?;
        self.operations.iter().try_for_each(|op| writeln!(f, "  {op:?}"))
    }
}

impl std::error::Error for Failure {}

/// Runs `steps` random operations; segments and invariants are checked every `check_every` steps,
/// results, history, counters and device calls always. The same arguments give the same run.
///
/// # Errors
/// The first thing that is wrong.
pub fn simulate(seed: u64, steps: u64, check_every: u64) -> Result<Summary, Box<Failure>> {
    let mut summary = Summary::default();
    while summary.steps < steps {
        let most = (steps - summary.steps).min(2_000);
        run_episode(seed, most, check_every.max(1), &mut summary)?;
    }
    Ok(summary)
}

fn random_start(rng: &mut Rng) -> Start {
    let minor = *rng.pick(&[8, 10, 11, 11, 12, 13]);
    Start {
        config: random_config(rng),
        version: TorchVersion::new(2, minor),
        total: *rng.pick(&[40, 100, 200, 512, 1024, 4096]) << 20,
        placement: rng.bits(),
    }
}

fn random_traits(rng: &mut Rng) -> Traits {
    Traits {
        several_streams: rng.one_in(2),
        pools: rng.one_in(3),
        changes: rng.one_in(3),
        told: rng.one_in(4),
    }
}

fn run_episode(
    seed: u64,
    most: u64,
    check_every: u64,
    summary: &mut Summary,
) -> Result<(), Box<Failure>> {
    let episode = summary.episodes;
    let mut rng = Rng::of(seed, episode);
    let start = random_start(&mut rng);
    let traits = random_traits(&mut rng);
    let length = (50 + rng.below(1_950)).min(most);
    let described = format!("{start:?} {traits:?}");
    let mut generator = Generator::new(rng, traits, start.total);
    let mut pair = Lockstep::new(start);
    let mut recent = VecDeque::with_capacity(SHOWN);
    let fail = |step, recent: &VecDeque<Op>, what| {
        let operations = recent.iter().cloned().collect();
        Box::new(Failure { seed, episode, step, start: described.clone(), operations, what })
    };
    for step in 0..length {
        let op = generator.draw(pair.live());
        if recent.len() == SHOWN {
            recent.pop_front();
        }
        recent.push_back(op.clone());
        let thoroughly = step % check_every == 0;
        pair.step(&op, thoroughly).map_err(|what| fail(step, &recent, what))?;
        summary.checks += u64::from(thoroughly);
        summary.history_entries += pair.entries().len() as u64;
        summary.most_live_blocks = summary.most_live_blocks.max(pair.live());
    }
    pair.wind_down().map_err(|what| fail(length, &recent, format!("at the end: {what}")))?;
    for (branch, times) in pair.reference().branches() {
        *summary.branches.entry(branch).or_default() += times;
    }
    summary.steps += length;
    summary.episodes += 1;
    Ok(())
}

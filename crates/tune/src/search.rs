//! The search: a grid, then steps around the best, then a closer look at what is worth showing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::prelude::*;
use vramwise_model::settings::Config;
use vramwise_types::TorchVersion;

use crate::candidate::{Candidate, mark_dominated};
use crate::capacity;
use crate::case::Case;
use crate::effects::{OptionEffect, effects};
use crate::evaluate::{Common, Setting, evaluate, widen};
use crate::grid::{self, Terrain};
use crate::jitter;
use crate::load::Load;
use crate::sizes;

/// What a search is told.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// PyTorch's version.
    pub version: TorchVersion,
    /// The settings of the recording: what the gain is measured against.
    pub baseline: Config,
    /// Bytes that the process may hold.
    pub capacity: Option<u64>,
    /// The card's bytes.
    pub total: Option<u64>,
    /// Variations of each program.
    pub jitter: u32,
    /// Seed of the variations.
    pub seed: u64,
    /// Most settings to try.
    pub candidates: usize,
}

impl TuneOptions {
    /// Settings tried unless something else is asked.
    pub const CANDIDATES: usize = 128;

    /// A search for that version against those settings.
    pub fn new(version: TorchVersion, baseline: Config) -> Self {
        Self {
            version,
            baseline,
            capacity: None,
            total: None,
            jitter: 0,
            seed: 0,
            candidates: Self::CANDIDATES,
        }
    }
}

/// Is told of progress: settings done, settings in all. May be called from several threads.
pub type Progress<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// What a search found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Index of the recorded settings in `candidates`.
    pub baseline: usize,
    /// Index of the recommended settings; the baseline's where nothing is better.
    pub recommended: usize,
    /// All settings tried, best first.
    pub candidates: Vec<Candidate>,
    /// Highest sum of requested bytes in use: no allocator can hold less.
    pub peak_live: u64,
    /// What kind of load it is.
    pub load: Load,
    /// What each option does alone.
    pub effects: Vec<OptionEffect>,
    /// Replays that each setting went through.
    pub runs: usize,
    /// What should be known beside the figures.
    pub notes: Vec<String>,
}

/// Differences in peak up to this share (1 / n) count as equal: simplicity decides then.
const INDIFFERENT: u64 = 100;
/// Settings whose surroundings are searched in each round.
const SEEDS: usize = 4;
/// Settings that get a smallest capacity and more address orders.
const FINALISTS: usize = 10;

/// Searches the settings for these programs.
pub fn tune(cases: &[Case], options: &TuneOptions, progress: &Progress<'_>) -> Report {
    tune_until(cases, options, progress, &AtomicBool::new(false)).expect("nobody stops it")
}

/// As [`tune`]; `None` if `stop` was set before it had ended. What is being replayed then is replayed to its end.
pub fn tune_until(
    cases: &[Case],
    options: &TuneOptions,
    progress: &Progress<'_>,
    stop: &AtomicBool,
) -> Option<Report> {
    let mut notes = Vec::new();
    let varied = with_variations(cases, options, &mut notes);
    let (programs, runs) = (cases.len(), varied.len());
    if runs > programs {
        notes.push(format!(
            "every setting was replayed {runs} times: {programs} as recorded and {} variations; peaks are \
             the worst of them, retries and device calls their sums",
            runs - programs
        ));
    }
    let cases = varied.as_slice();
    let common = Common {
        version: options.version,
        capacity: options.capacity,
        total: options.total,
        own_capacity: true,
    };
    let sizes = sizes::large_sizes(cases);
    let terrain = Terrain {
        version: options.version,
        sizes: &sizes,
        limited: options.capacity.is_some() || cases.iter().any(|case| case.capacity.is_some()),
        baseline: &options.baseline,
    };
    let mut search = Search { cases, common, options, progress, stop, tried: Vec::new() };
    search.try_all(grid::settings(&terrain))?;
    search.explore(&terrain)?;
    let peak_live = cases.iter().map(|c| c.program.peak_live_bytes()).max().unwrap_or(0);
    search.look_closer(peak_live)?;
    let largest = sizes.last().map_or(0, |(size, _)| *size);
    let effects = effects(&search.tried, options, largest);
    let candidates = search.tried;
    let load = Load::of(&varied[..programs]);
    Some(finish(candidates, options, peak_live, effects, load, runs, notes))
}

fn with_variations(cases: &[Case], options: &TuneOptions, notes: &mut Vec<String>) -> Vec<Case> {
    let mut all = cases.to_vec();
    if options.jitter == 0 {
        return all;
    }
    for case in cases {
        match jitter::variations(case, options.jitter, options.seed) {
            Some(more) => all.extend(more),
            None => notes.push(format!(
                "{}: no repeating steps were found in the history, so there is nothing to vary",
                case.name
            )),
        }
    }
    all
}

struct Search<'a> {
    cases: &'a [Case],
    common: Common,
    options: &'a TuneOptions,
    progress: &'a Progress<'a>,
    stop: &'a AtomicBool,
    tried: Vec<Candidate>,
}

/// The order of merit: fewer failures, a lower peak in the worst address order, fewer device calls,
/// fewer options. Where something failed the peak says nothing, and what it would take comes first.
fn merit(c: &Candidate) -> (usize, u64, usize, u64, u64, usize) {
    let needs = if c.oom_runs > 0 { c.smallest_capacity.unwrap_or(u64::MAX) } else { 0 };
    let calls = c.device_calls.total();
    (c.oom_runs, needs, c.failed_requests, c.worst_peak(), calls, c.options())
}

impl Search<'_> {
    /// Whether to go on: `None` is the end.
    fn go_on(&self) -> Option<()> {
        (!self.stop.load(Ordering::Relaxed)).then_some(())
    }

    /// Tries settings in parallel, as many as the budget allows.
    fn try_all(&mut self, settings: Vec<Setting>) -> Option<()> {
        let new: Vec<Setting> = settings
            .into_iter()
            .filter(|s| self.tried.iter().all(|c| c.config != s.config))
            .take(self.options.candidates.max(2) - self.tried.len().min(self.options.candidates))
            .collect();
        let before = self.tried.len();
        let done = AtomicUsize::new(before);
        let results = new
            .par_iter()
            .map(|setting| {
                self.go_on()?;
                let mut candidate = evaluate(setting, self.cases, &self.common);
                widen(&mut candidate, self.cases, &self.common, false);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                (self.progress)(done, self.options.candidates);
                Some(candidate)
            })
            .collect::<Option<Vec<Candidate>>>()?;
        self.tried.extend(results);
        Some(())
    }

    /// Steps around the best until the budget is spent or nothing new is found.
    fn explore(&mut self, terrain: &Terrain<'_>) -> Option<()> {
        let mut explored: Vec<Config> = Vec::new();
        while self.tried.len() < self.options.candidates {
            let mut order: Vec<usize> = (0..self.tried.len()).collect();
            order.sort_by_key(|i| (merit(&self.tried[*i]), *i));
            let seeds: Vec<Config> = order
                .into_iter()
                .map(|i| &self.tried[i].config)
                .filter(|config| !explored.contains(config))
                .take(SEEDS)
                .cloned()
                .collect();
            if seeds.is_empty() {
                break;
            }
            let mut near: Vec<Setting> = Vec::new();
            for seed in &seeds {
                near.extend(grid::neighbours(seed, terrain));
            }
            explored.extend(seeds);
            near.dedup_by(|a, b| a.config == b.config);
            self.try_all(near)?;
        }
        Some(())
    }

    /// More address orders and the smallest capacity for what the report shows: the best settings, the
    /// baseline, PyTorch's defaults and the recommendation. The closer look can move the recommendation,
    /// which then is looked at as well.
    fn look_closer(&mut self, peak_live: u64) -> Option<()> {
        let mut order: Vec<usize> = (0..self.tried.len()).collect();
        order.sort_by_key(|i| (merit(&self.tried[*i]), *i));
        let shown = |(place, i): &(usize, usize)| {
            let c = &self.tried[*i];
            *place < FINALISTS || c.config == self.options.baseline || c.conf.is_empty()
        };
        let mut next: Vec<usize> =
            order.into_iter().enumerate().filter(shown).map(|p| p.1).collect();
        let mut looked: Vec<usize> = Vec::new();
        loop {
            let recommended = recommend(&self.tried, self.options);
            if !looked.contains(&recommended) && !next.contains(&recommended) {
                next.push(recommended);
            }
            if next.is_empty() {
                return Some(());
            }
            let closer = next
                .par_iter()
                .map(|i| self.go_on().map(|()| self.closer(&self.tried[*i], peak_live)))
                .collect::<Option<Vec<Candidate>>>()?;
            for (i, candidate) in next.iter().zip(closer) {
                self.tried[*i] = candidate;
            }
            looked.append(&mut next);
        }
    }

    fn closer(&self, candidate: &Candidate, peak_live: u64) -> Candidate {
        let mut candidate = candidate.clone();
        widen(&mut candidate, self.cases, &self.common, true);
        let peak = unlimited_peak(&candidate, self.cases, &self.common);
        candidate.smallest_capacity =
            capacity::smallest(&candidate.config, self.cases, &self.common, peak, peak_live);
        candidate
    }
}

/// The peak that a setting reaches when nothing limits it.
fn unlimited_peak(candidate: &Candidate, cases: &[Case], common: &Common) -> u64 {
    if common.capacity.is_none() && cases.iter().all(|case| case.capacity.is_none()) {
        return candidate.peak_reserved;
    }
    let setting = Setting { config: candidate.config.clone(), conf: candidate.conf.clone() };
    evaluate(&setting, cases, &Common { capacity: None, own_capacity: false, ..*common })
        .peak_reserved
}

fn finish(
    mut candidates: Vec<Candidate>,
    options: &TuneOptions,
    peak_live: u64,
    effects: Vec<OptionEffect>,
    load: Load,
    runs: usize,
    mut notes: Vec<String>,
) -> Report {
    mark_dominated(&mut candidates);
    let recommended = recommend(&candidates, options);
    let recommended = candidates[recommended].config.clone();
    candidates.sort_by_key(merit);
    let place = |config: &Config| candidates.iter().position(|c| c.config == *config).unwrap_or(0);
    let (baseline, recommended) = (place(&options.baseline), place(&recommended));
    candidates[recommended].dominated = false;
    candidates[baseline].dominated = false;
    if candidates[recommended].config.garbage_collection_threshold > 0.0 {
        notes.push(
            "garbage_collection_threshold works only under a limit: call \
             torch.cuda.set_per_process_memory_fraction() as well"
                .to_owned(),
        );
    }
    Report { baseline, recommended, candidates, peak_live, load, effects, runs, notes }
}

/// The best setting: of those that fail least, the simplest whose worst peak is within one per cent of
/// the lowest and that needs no larger card than now; the recorded one where nothing is better than it by more than that.
fn recommend(candidates: &[Candidate], options: &TuneOptions) -> usize {
    let Some(fewest) = candidates.iter().map(|c| c.oom_runs).min() else { return 0 };
    if fewest > 0 {
        // Nothing fits: the setting that needs least, as far as that was looked for.
        return (0..candidates.len()).min_by_key(|i| (merit(&candidates[*i]), *i)).unwrap_or(0);
    }
    let fit = |c: &&Candidate| c.oom_runs == fewest;
    let lowest = candidates.iter().filter(fit).map(Candidate::worst_peak).min().unwrap_or(0);
    let close = lowest.saturating_add(lowest / INDIFFERENT);
    let good = |c: &Candidate| c.oom_runs == fewest && c.worst_peak() <= close;
    let baseline = candidates.iter().position(|c| c.config == options.baseline);
    if let Some(baseline) = baseline
        && good(&candidates[baseline])
    {
        return baseline;
    }
    // A lower peak is no gain where the program then needs a larger card than now.
    let now = baseline.and_then(|i| candidates[i].smallest_capacity).unwrap_or(u64::MAX);
    let best = (0..candidates.len()).filter(|i| good(&candidates[*i])).min_by_key(|i| {
        let c = &candidates[*i];
        let needs_more = c.smallest_capacity.is_some_and(|needs| needs > now);
        (needs_more, c.options(), c.worst_peak(), c.device_calls.total(), *i)
    });
    best.or(baseline).unwrap_or(0)
}

//! What to do, each piece with the replay that proves it, in order of effect.

use rustc_hash::FxHashSet;
use vramwise_model::settings::{self, Config};
use vramwise_tune::TuneOptions;
use vramwise_types::Human;

use super::change;
use super::classify::{Case, Verdict};
use super::trial::Trial;
use super::{Advice, Cause};

/// An allocation that was held when the request failed.
pub(super) struct Held {
    pub(super) slot: u32,
    pub(super) op: usize,
    pub(super) bytes: u64,
    pub(super) place: String,
}

/// Settings that a search tries.
const SETTINGS: usize = 32;
/// Operations from which on there is no search.
const LONG: usize = 200_000;
/// What is tried then.
const USUAL: [&str; 8] = [
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:8",
];
/// Of the settings under which the request passes, the search's best so many are replayed to the end.
const PASSING: usize = 12;
/// Places whose blocks are released to see whether that helps.
const PLACES: usize = 3;

/// Collects advice for one failure.
pub(super) struct Adviser<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) verdict: &'a Verdict,
    pub(super) held: &'a [Held],
    /// Programs of the recording, for the search of settings.
    pub(super) tuned: vramwise_tune::Case,
    /// The variable's name in this release.
    pub(super) variable: &'static str,
    pub(super) out: Vec<Advice>,
}

impl Adviser<'_> {
    /// Everything that can be said.
    pub(super) fn run(mut self) -> Vec<Advice> {
        if self.verdict.cause == Cause::AbsurdRequest {
            return vec![super::unproved::print_shapes()];
        }
        let best = if self.verdict.hopeless { None } else { self.settings() };
        let no_setting = best.is_none().then(|| self.out.pop()).flatten();
        match self.verdict.cause {
            Cause::PrivatePools => self.pools(),
            Cause::PendingFree => self.pending(),
            Cause::Fragmentation => self.own_pool(),
            _ => {}
        }
        self.capacity(best.as_ref());
        self.release();
        self.smaller();
        self.out.extend(no_setting);
        self.out
    }

    fn proved(&mut self, action: String, evidence: String, trial: Trial) {
        self.out.push(Advice { action, evidence, trial: Some(trial) });
    }

    /// Settings under which the request passes, the simplest and best first; none that are in force.
    fn settings(&mut self) -> Option<Config> {
        let case = self.case;
        let limit = case.limit.low;
        let candidates = self.candidates();
        let tried = candidates.len();
        let mut good: Vec<(Config, Trial)> = Vec::new();
        for config in candidates {
            let same = config == *case.config;
            if same || !case.bench.passes(case.program, &config, limit) {
                continue;
            }
            let trial = case.bench.run(case.program, &config, Some(limit));
            if trial.passes {
                good.push((config, trial));
            }
            if good.len() == PASSING {
                break;
            }
        }
        good.sort_by_key(|(_, t)| {
            (t.later_failures, t.conf.matches(':').count(), t.peak_reserved, t.conf.clone())
        });
        let Some((config, trial)) = good.first().cloned() else {
            self.out.push(Advice {
                action: "expect nothing from allocator settings here".to_owned(),
                evidence: format!(
                    "of {tried} settings tried under {}, none lets the request pass",
                    Human(limit)
                ),
                trial: None,
            });
            return None;
        };
        self.setting(trial);
        // Another way for those who cannot have the first: expandable segments need a platform.
        let other = good.iter().find(|(c, _)| c.expandable_segments != config.expandable_segments);
        if let Some((_, trial)) = other {
            self.setting(trial.clone());
        }
        Some(config)
    }

    /// Settings to be tried: what a search finds, for long histories the usual ones.
    fn candidates(&self) -> Vec<Config> {
        let case = self.case;
        let version = case.bench.version;
        if case.program.ops.len() > LONG {
            let usual = USUAL.iter().filter_map(|conf| settings::parse(conf, version).ok());
            return usual.map(|parsed| parsed.config).collect();
        }
        let mut options = TuneOptions::new(version, case.config.clone());
        options.capacity = Some(case.limit.low);
        options.total = case.bench.total;
        options.candidates = SETTINGS;
        let report = vramwise_tune::tune(std::slice::from_ref(&self.tuned), &options, &|_, _| {});
        report.candidates.into_iter().map(|candidate| candidate.config).collect()
    }

    fn setting(&mut self, trial: Trial) {
        let action = if trial.conf.is_empty() {
            format!("unset {}: the defaults do better here", self.variable)
        } else {
            format!("set {}={} before the program starts", self.variable, trial.conf)
        };
        self.proved(action, trial.says(), trial);
    }

    fn pools(&mut self) {
        let merged = change::merged(self.case.program);
        let trial = self.case.bench.run(&merged, self.case.config, Some(self.case.limit.low));
        if trial.passes {
            self.proved(
                "give the private pools back before this request: delete the CUDA graphs or the \
                 MemPool that own them, or let graphs share one pool"
                    .to_owned(),
                format!("with one pool for everything, {}", trial.says()),
                trial,
            );
        }
    }

    fn pending(&mut self) {
        let completed = change::completed(self.case.program);
        let trial = self.case.bench.run(&completed, self.case.config, Some(self.case.limit.low));
        if trial.passes {
            self.proved(
                "do not let frees wait: wait for the side stream before dropping the tensor, instead \
                 of record_stream, or synchronize before this request"
                    .to_owned(),
                format!("if no block waited for another stream, {}", trial.says()),
                trial,
            );
        }
    }

    /// The blocks that keep half-empty segments, from a pool of their own.
    fn own_pool(&mut self) {
        let Some(place) = self.pinning_place() else { return };
        let requests: FxHashSet<usize> = self.requests_of(&place);
        let apart = change::apart(self.case.program, &requests);
        let trial = self.case.bench.run(&apart, self.case.config, Some(self.case.limit.low));
        if trial.passes && self.case.bench.version.at_least_2(5) {
            self.proved(
                format!(
                    "allocate the blocks of {place} from a pool of their own: with \
                     torch.cuda.use_mem_pool(torch.cuda.MemPool()) around that line"
                ),
                trial.says(),
                trial,
            );
        }
    }

    fn pinning_place(&self) -> Option<String> {
        let mut sums: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
        for segment in self.case.pinned {
            if let Some(first) = segment.blocks.first() {
                *sums.entry(&first.place).or_default() += segment.free;
            }
        }
        sums.into_iter().max_by_key(|(_, free)| *free).map(|(place, _)| place.to_owned())
    }

    fn requests_of(&self, place: &str) -> FxHashSet<usize> {
        self.held.iter().filter(|h| h.place == place).map(|h| h.op).collect()
    }

    /// The smallest limit that would have been enough, and what expandable segments make of it.
    fn capacity(&mut self, best: Option<&Config>) {
        let case = self.case;
        let (bench, low) = (&case.bench, case.limit.low);
        let free = bench.run(case.program, case.config, None);
        let high = free.peak_reserved.max(low);
        let own = bench.smallest_limit(case.program, case.config, (low, high));
        let Some(trial) = own else { return };
        let bytes = trial.limit.unwrap_or(high);
        let action = match self.verdict.cause {
            Cause::MemoryLimit => format!(
                "raise the limit of the process to {} or more \
                 (torch.cuda.set_per_process_memory_fraction)",
                Human(bytes)
            ),
            Cause::OtherProcess => format!(
                "end the other processes on the card, or choose another: PyTorch needs {} for itself",
                Human(bytes)
            ),
            // The card had room: something below it refused.
            _ if case.account.device_free.is_some_and(|free| free >= case.account.segment) => {
                format!(
                    "raise the limit of the process to {} or more: the card itself has room",
                    Human(bytes)
                )
            }
            _ => format!("use a card that gives PyTorch {} or more", Human(bytes)),
        };
        let (mut action, mut evidence) = (action, trial.says());
        if !trial.all_fits() {
            let whole = bench.smallest_limit_of_all(case.program, case.config, (bytes, high));
            action.push_str(" for this request alone");
            if let Some(whole) = whole.and_then(|trial| trial.limit) {
                action.push_str(&format!("; the whole program needs {}", Human(whole)));
            }
        }
        if let Some(best) = best {
            let conf = best.to_conf_string(bench.version);
            let fits = bench.run(case.program, best, Some(low)).all_fits();
            let what = if fits { "not needed" } else { "for this request not needed" };
            evidence.push_str(&format!("; {what} with {conf}"));
        }
        self.proved(action, evidence, trial);
        if best.is_none() {
            self.expandable((low, bytes));
        }
    }

    /// Expandable segments where they let the request pass under a smaller limit than it needs now,
    /// although not under the one that is assumed.
    fn expandable(&mut self, (low, now): (u64, u64)) {
        let case = self.case;
        if case.config.expandable_segments || !case.bench.version.at_least_2(1) {
            return;
        }
        let config = Config { expandable_segments: true, ..case.config.clone() };
        let from = low.max(case.account.needed().saturating_sub(2 << 20));
        let found = case.bench.smallest_limit(case.program, &config, (from, now));
        let Some((trial, limit)) = found.and_then(|t| t.limit.map(|l| (t, l))) else { return };
        if limit >= now {
            return;
        }
        let possible = match (case.limit.given, limit <= case.limit.high) {
            (true, _) | (false, false) => "which is more than there was",
            (false, true) => "which the limit of this recording can have been",
        };
        let action = format!(
            "set {}={} beside a larger limit: {} is then enough instead of {}",
            self.variable,
            trial.conf,
            Human(limit),
            Human(now)
        );
        self.proved(action, format!("{}, {possible}", trial.says()), trial);
    }

    /// What the program could give back before the request.
    fn release(&mut self) {
        let mut sums: std::collections::BTreeMap<&str, (u64, usize)> =
            std::collections::BTreeMap::new();
        // What has no line of its own cannot be told to be freed.
        for held in self.held.iter().filter(|h| !h.place.starts_with('(')) {
            let sum = sums.entry(&held.place).or_default();
            sum.0 += held.bytes;
            sum.1 += 1;
        }
        let mut places: Vec<_> = sums.into_iter().collect();
        places.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
        for (place, (bytes, blocks)) in places.into_iter().take(PLACES) {
            let slots: FxHashSet<u32> =
                self.held.iter().filter(|h| h.place == place).map(|h| h.slot).collect();
            let Some(op) = self.failing_op() else { return };
            let changed = change::released(self.case.program, &slots, op);
            let trial = self.case.bench.run(&changed, self.case.config, Some(self.case.limit.low));
            if trial.passes {
                self.proved(
                    format!(
                        "hold less of what {place} allocates ({} in {blocks} {} now): drop or move to \
                         the host what this step does not need, recompute the rest (checkpointing)",
                        Human(bytes),
                        if blocks == 1 { "block" } else { "blocks" }
                    ),
                    format!("if none of it were held when the request comes, {}", trial.says()),
                    trial,
                );
                return;
            }
        }
    }

    fn failing_op(&self) -> Option<usize> {
        let event = u32::try_from(self.case.bench.event).ok()?;
        let events = &self.case.program.events;
        let first = events.partition_point(|e| *e < event);
        (first..events.len()).take_while(|i| events[*i] == event).find(|i| {
            matches!(
                self.case.program.ops[*i],
                vramwise_replay::Op::Malloc { .. } | vramwise_replay::Op::Failed { .. }
            )
        })
    }

    /// The part that no replay can show.
    fn smaller(&mut self) {
        let a = &self.case.account;
        let missing = a.needed().saturating_sub(self.case.limit.low);
        if missing == 0 {
            return;
        }
        self.out.push(Advice {
            action: "make the step smaller: a smaller batch with gradient accumulation, shorter \
                     sequences, activation checkpointing"
                .to_owned(),
            evidence: format!(
                "not proved, since the requests would be others: {} must go from the {} that are live \
                 or asked for",
                Human(missing),
                Human(a.needed())
            ),
            trial: None,
        });
    }
}

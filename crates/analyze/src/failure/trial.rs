//! Replays that prove a piece of advice, or show that it does not help.

use std::sync::Arc;

use vramwise_model::device::{Device, DeviceCall};
use vramwise_model::settings::Config;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, NoHistory};
use vramwise_replay::{
    Addresses, Conditions, Observer, Outcome, Program, Under, what_if, what_if_observed,
};
use vramwise_types::{Human, TorchVersion};

/// What a replay under a change came to, over all address orders that were tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Whether the request passes, under every order of addresses.
    pub passes: bool,
    /// Most requests that fail later in the recorded history.
    pub later_failures: usize,
    /// Most bytes held, the worst over the orders.
    pub peak_reserved: u64,
    /// The limit of the replay, bytes; `None` = none.
    pub limit: Option<u64>,
    /// Settings of the replay, as people write them; empty for PyTorch's defaults.
    pub conf: String,
    /// Orders of addresses: 1 where no address decided anything.
    pub orders: usize,
}

impl Trial {
    /// Whether nothing fails any more.
    pub fn all_fits(&self) -> bool {
        self.passes && self.later_failures == 0
    }

    /// The outcome in words.
    pub fn says(&self) -> String {
        let limit = self.limit.map_or_else(String::new, |l| format!(" under {}", Human(l)));
        let orders = match self.orders {
            0 | 1 => String::new(),
            n => format!(" in each of {n} orders of addresses"),
        };
        if !self.passes {
            return format!("replayed{limit}: the request still fails");
        }
        let rest = match self.later_failures {
            0 => "and so does the rest of the history".to_owned(),
            1 => "but a later one of the history fails".to_owned(),
            n => format!("but {n} later ones of the history fail"),
        };
        format!(
            "replayed{limit}: the request passes{orders}, {rest}; at most {} is reserved",
            Human(self.peak_reserved)
        )
    }
}

/// What all trials of one failure have in common.
pub(super) struct Bench<'a> {
    pub(super) calls: &'a Arc<[DeviceCall]>,
    pub(super) version: TorchVersion,
    pub(super) total: Option<u64>,
    /// What the recording was made under.
    pub(super) settings: &'a Under,
    /// Event of the failed request.
    pub(super) event: usize,
}

/// Ends a replay at its first failed request, or after the event that matters.
struct Until<'a> {
    events: &'a [u32],
    last: usize,
}

impl Observer for Until<'_> {
    #[inline]
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        allocator.stats().num_ooms == 0
            && self.events.get(op + 1).is_some_and(|next| *next as usize <= self.last)
    }
}

/// Orders beside the driver's, where addresses decide.
const OTHER_ORDERS: [Addresses; 4] =
    [Addresses::Rising, Addresses::Falling, Addresses::Shuffled(1), Addresses::Shuffled(2)];

impl Bench<'_> {
    /// These settings for the whole run; the recording's own change where they did.
    fn conditions(&self, config: &Config, limit: Option<u64>) -> Conditions {
        let own = *config == self.settings.config;
        Conditions {
            changes: if own { self.settings.changes.clone() } else { Vec::new() },
            limit,
            total: self.total,
            ..Conditions::new(config.clone(), self.version)
        }
    }

    /// Replays `program` under these settings and this limit.
    pub(super) fn run(&self, program: &Program, config: &Config, limit: Option<u64>) -> Trial {
        let run = |addresses| {
            let conditions = Conditions { addresses, ..self.conditions(config, limit) };
            what_if(program, self.calls, &conditions)
        };
        let mut trial = Trial {
            passes: true,
            later_failures: 0,
            peak_reserved: 0,
            limit,
            conf: config.to_conf_string(self.version),
            orders: 1,
        };
        let first = run(Addresses::Driver);
        self.add(&mut trial, &first);
        if first.ties > 0 && trial.passes {
            for order in OTHER_ORDERS {
                self.add(&mut trial, &run(order));
                trial.orders += 1;
                if !trial.passes {
                    break;
                }
            }
        }
        trial
    }

    /// Whether the request passes, with the driver's addresses; the rest is not replayed.
    pub(super) fn passes(&self, program: &Program, config: &Config, limit: u64) -> bool {
        let conditions = self.conditions(config, Some(limit));
        let mut until = Until { events: &program.events, last: self.event };
        let outcome =
            what_if_observed(program, self.calls, &conditions, &mut until, &mut NoHistory);
        outcome.ooms.is_empty()
    }

    fn add(&self, trial: &mut Trial, outcome: &Outcome) {
        let until = outcome.ooms.iter().filter(|oom| oom.event <= self.event).count();
        let later = outcome.ooms.len() - until;
        let peak = u64::try_from(outcome.stats.all(Family::ReservedBytes).peak).unwrap_or(0);
        trial.passes &= until == 0;
        trial.later_failures = trial.later_failures.max(later);
        trial.peak_reserved = trial.peak_reserved.max(peak);
    }

    /// The smallest limit, in steps of 2 MiB, under which the request passes: found by bisection above
    /// `low` and replayed. `None` where even `high` is not enough.
    pub(super) fn smallest_limit(
        &self,
        program: &Program,
        config: &Config,
        (low, high): (u64, u64),
    ) -> Option<Trial> {
        let runs = |limit| {
            if !self.passes(program, config, limit) {
                return None;
            }
            Some(self.run(program, config, Some(limit))).filter(|trial| trial.passes)
        };
        smallest((low, high), runs)
    }

    /// The same for everything that the history asks for.
    pub(super) fn smallest_limit_of_all(
        &self,
        program: &Program,
        config: &Config,
        between: (u64, u64),
    ) -> Option<Trial> {
        smallest(between, |limit| {
            Some(self.run(program, config, Some(limit))).filter(Trial::all_fits)
        })
    }
}

/// Bisection over limits in steps of 2 MiB: the smallest for which there is a trial.
fn smallest((low, high): (u64, u64), trial: impl Fn(u64) -> Option<Trial>) -> Option<Trial> {
    const STEP: u64 = 2 << 20;
    let runs = |steps: u64| trial(steps.saturating_mul(STEP));
    let (mut fails, mut works) = (low / STEP, high.div_ceil(STEP));
    let mut best = runs(works)?;
    while fails + 1 < works {
        let middle = fails + (works - fails) / 2;
        match runs(middle) {
            Some(trial) => (works, best) = (middle, trial),
            None => fails = middle,
        }
    }
    Some(best)
}

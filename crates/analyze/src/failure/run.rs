//! One explanation for each device of a snapshot.

use vramwise_model::settings::variable_for;
use vramwise_replay::{Conditions, Op, Recording, Under, VerifyOptions, recorded_under};
use vramwise_trace::{DeviceTrace, Snapshot, StackId};
use vramwise_types::{Action, Human};

use super::advice::{Adviser, Held};
use super::classify::Case;
use super::moment::{self, Moment};
use super::pools::{self, Route};
use super::recorded::Recorded;
use super::trial::Bench;
use super::unproved;
use super::{Account, Cause, Device, Failure, Limit, Options, Proof, change, pins};
use crate::peak::holders::{By, Namer};
use crate::peak::replayed::event_of;
use crate::peak::state::State;
use crate::stacks::Sampled;

/// Says why every device with a history ran out of memory, or would under the capacity.
pub fn explain(snapshot: &Snapshot, options: &Options) -> Vec<Device> {
    (0u32..)
        .zip(&snapshot.devices)
        .filter(|(n, d)| !d.events.is_empty() && options.device.is_none_or(|only| only == *n))
        .map(|(number, device)| one(snapshot, number, device, options))
        .collect()
}

fn one(snapshot: &Snapshot, number: u32, device: &DeviceTrace, options: &Options) -> Device {
    let mut settings = recorded_under(snapshot, device, options.version);
    let (mut recording, is_question) = verified(device, &settings, options);
    let mut assumptions = std::mem::take(&mut settings.notes);
    let config = &settings.config;
    assumptions.append(&mut recording.assumptions);
    let recorded: Vec<usize> = failures(device).collect();
    let mut answer = Device {
        device: number,
        events: device.events.len(),
        proof: Proof::Exact(recording.entries),
        conf: config.to_conf_string(options.version),
        capacity: options.capacity,
        peak_reserved: None,
        peak_under_capacity: None,
        recorded_failures: recorded.len(),
        failure: None,
        sampled: Sampled::of(snapshot, number, device),
        assumptions,
    };
    if let Some(why) = not_exact(&recording) {
        answer.proof = Proof::None(why);
        let history = Recorded::new(device, config);
        answer.failure =
            recorded.first().map(|event| unproved::failure(snapshot, &history, *event, options));
        return answer;
    }
    let stats = &recording.stats;
    answer.peak_reserved =
        u64::try_from(stats.all(vramwise_model::stats::Family::ReservedBytes).peak).ok();
    let capacity = options.capacity.filter(|_| is_question || recorded.is_empty());
    if let Some(bytes) = capacity {
        answer.peak_under_capacity =
            moment::peak_under(&recording, &conditions(&settings, options, Some(bytes)));
    }
    let found = match capacity {
        Some(bytes) => {
            let limit = Limit { low: bytes, high: bytes, given: true };
            under(&recording, &settings, options, bytes).map(|moment| (moment, limit))
        }
        None => recorded_failure(&recording, &settings, options, recorded.first().copied()).map(
            |(moment, low)| {
                let limit = limit(low, options, device, &moment);
                (moment, limit)
            },
        ),
    };
    let history = Recorded::new(device, config);
    if capacity.is_some()
        && let Some(why) = history.unlike_replays(&recording, &conditions(&settings, options, None))
    {
        answer.proof = Proof::None(why);
    }
    let by_history = |event| unproved::failure(snapshot, &history, event, options);
    let unlike = match (&found, recorded.first()) {
        (Some((moment, _)), Some(event)) if capacity.is_none() => history.unlike(moment, *event),
        _ => None,
    };
    answer.failure = match (found, recorded.first()) {
        (Some((moment, _)), Some(event)) if unlike.is_some() => {
            answer.proof = Proof::None(unlike.unwrap_or_default());
            let mut failure = by_history(*event);
            // How much the allocator asks the driver for does not depend on what is cached.
            failure.account.segment = moment.failed.segment;
            Some(failure)
        }
        (Some((moment, limit)), _) => {
            let proved = matches!(answer.proof, Proof::Exact(_));
            let (recording, settings) = (&recording, &settings);
            let history = &history;
            let asked = Asked { snapshot, device, recording, settings, options, history, proved };
            Some(asked.failure(&moment, limit, &recorded))
        }
        (None, Some(event)) if capacity.is_none() => {
            answer.proof = Proof::None(format!(
                "told from the history alone: of the limits that were tried, none makes a further \
                 replay fail first at event {event} (give the true one with --capacity)"
            ));
            Some(by_history(*event))
        }
        (None, _) => None,
    };
    answer
}

fn failures(device: &DeviceTrace) -> impl Iterator<Item = usize> + '_ {
    (0..device.events.len()).filter(|i| device.events.action[*i] == Action::Oom)
}

/// Verifies the recording; a capacity may be the limit that it was made under, or a question.
fn verified(device: &DeviceTrace, under: &Under, options: &Options) -> (Recording, bool) {
    let mut verify = under.verify(options.version);
    verify.total = options.total;
    let plain = Recording::verify(device, &verify);
    let Some(limit) = options.capacity else { return (plain, false) };
    if plain.ooms.is_empty() && plain.is_exact() {
        return (plain, true);
    }
    let within = Recording::verify(device, &VerifyOptions { limit: Some(limit), ..verify });
    if within.is_exact() { (within, false) } else { (plain, true) }
}

fn not_exact(recording: &Recording) -> Option<String> {
    if let Some(why) = &recording.impossible {
        return Some(format!("no run of PyTorch's allocator can have written it: {why}"));
    }
    if recording.requests_only {
        return Some(
            "it was recorded under vramwise's allocator, whose blocks no replay of PyTorch's has"
                .to_owned(),
        );
    }
    if let Some(divergence) = &recording.first_divergence {
        return Some(format!("the replay parts from the recording at event {}", divergence.event));
    }
    if !recording.agreement.all_exact() {
        return Some("not every entry of the recording was reproduced".to_owned());
    }
    let difference = recording.final_difference.as_ref()?;
    Some(format!("the replay ends in another state: {difference}"))
}

fn conditions(settings: &Under, options: &Options, limit: Option<u64>) -> Conditions {
    Conditions {
        changes: settings.changes.clone(),
        limit,
        total: options.total,
        ..Conditions::new(settings.config.clone(), options.version)
    }
}

fn under(recording: &Recording, settings: &Under, options: &Options, bytes: u64) -> Option<Moment> {
    moment::first(recording, &conditions(settings, options, Some(bytes)))
}

/// The first recorded failure, reached by a replay under a limit that lets it fail there and not before.
fn recorded_failure(
    recording: &Recording,
    settings: &Under,
    options: &Options,
    event: Option<usize>,
) -> Option<(Moment, u64)> {
    let event = event?;
    let held = recording.stats.all(vramwise_model::stats::Family::ReservedBytes).peak;
    let strictest = u64::try_from(held).ok();
    let at_event = |moment: &Moment| {
        let op = moment.op;
        matches!(recording.program.ops[op], Op::Failed { .. })
            && recording.program.events[op] as usize <= event
    };
    // The strictest limit can refuse too early where the cache was flushed otherwise: larger ones follow,
    // up to what would have let the request pass.
    let asked = recording.ooms.first().map_or(0, |(_, size)| *size);
    let larger = (1..=LIMITS).map(|i| strictest.map(|s| s.saturating_add(asked / LIMITS * i)));
    [recording.limit, strictest].into_iter().chain(larger).flatten().find_map(|limit| {
        let moment = under(recording, settings, options, limit).filter(at_event)?;
        Some((moment, limit))
    })
}

/// Limits above the strictest that are tried.
const LIMITS: u64 = 24;

/// What the limit of a recorded failure can have been, of which `low` lets it fail in a replay.
fn limit(low: u64, options: &Options, device: &DeviceTrace, moment: &Moment) -> Limit {
    if let Some(given) = options.capacity {
        return Limit { low: given, high: given, given: true };
    }
    let failed = &moment.failed;
    let free = failures(device).next().map(|event| device.events.addr[event]);
    let high = match free {
        // The card was full: there was as much as was held and free.
        Some(free) if free < failed.segment => failed.reserved.saturating_add(free),
        _ => failed.reserved.saturating_add(failed.segment).saturating_sub(1),
    };
    Limit { low: low.min(high), high, given: false }
}

/// One failure to be explained.
struct Asked<'a> {
    snapshot: &'a Snapshot,
    device: &'a DeviceTrace,
    recording: &'a Recording,
    settings: &'a Under,
    options: &'a Options,
    history: &'a Recorded<'a>,
    proved: bool,
}

impl Asked<'_> {
    fn failure(&self, moment: &Moment, limit: Limit, recorded: &[usize]) -> Failure {
        let (recording, options) = (self.recording, self.options);
        let events = &self.device.events;
        let event = event_of(recording, events, moment.op);
        let is_recorded = recorded.contains(&event)
            && matches!(recording.program.ops[moment.op], Op::Failed { .. });
        let state = State::of_replay(&moment.views, &moment.origins, recording, events);
        // What was there before the recording has other addresses in a replay, and so has its stack.
        let whole = recording.program.preamble == 0;
        let mut pinned = pins::pinned(self.snapshot, &state, options.frames);
        pinned.retain(|_| whole);
        let holders = if whole { &state } else { &self.history.before(event) };
        let holders = pins::holders(self.snapshot, holders, options.frames);
        let device_free = is_recorded.then(|| events.addr[event]);
        let account = self.account(moment, &state, device_free);
        let case = Case {
            bench: Bench {
                calls: &recording.calls,
                version: options.version,
                total: options.total,
                settings: self.settings,
                event: moment.failed.event,
            },
            program: &recording.program,
            config: &self.settings.config,
            limit,
            account,
            recorded: is_recorded,
            pinned: &pinned,
        };
        let verdict = case.verdict();
        let held = self.held(moment.op);
        let adviser = Adviser {
            case: &case,
            verdict: &verdict,
            held: &held,
            tuned: vramwise_tune::Case::new("recording", recording),
            variable: variable_for(options.version),
            out: Vec::new(),
        };
        let advice = adviser.run();
        let mut why = verdict.why;
        if is_recorded && verdict.cause != Cause::Unknown {
            why.push(
                "what the program would have done after the request, had it passed, is not known: the \
                 rest of the history is what it did after it failed"
                    .to_owned(),
            );
        }
        let stack = events.stack.get(event).copied().unwrap_or(StackId::NONE);
        Failure {
            event,
            time_us: events.time_us.get(event).copied().filter(|t| *t > 0),
            recorded: is_recorded,
            proved: self.proved,
            place: self.namer().stack(stack),
            limit,
            account,
            cause: verdict.cause,
            confidence: if self.proved { verdict.confidence } else { verdict.confidence.min(0.6) },
            contributing: verdict.contributing,
            why,
            advice,
            holders,
            pinned,
        }
    }

    fn namer(&self) -> Namer<'_> {
        Namer::new(self.snapshot, By::Stack, self.options.frames)
    }

    fn account(&self, moment: &Moment, state: &State, device_free: Option<u64>) -> Account {
        let program = &self.recording.program;
        let (stream, pool) = moment::route(program, moment.op);
        let stream = program.streams.get(stream as usize).copied().unwrap_or(0);
        let pool = self.recording.pool_ids.get(pool as usize).copied().unwrap_or((0, 0));
        let asked =
            vramwise_model::size::round_size(&self.settings.config, moment.failed.requested);
        let mut account = Account {
            asked,
            segment: moment.failed.segment,
            reserved: moment.failed.reserved,
            device_free,
            ..Account::default()
        };
        let small = vramwise_model::size::is_small(asked);
        pools::count(&mut account, state, Route { stream, pool, small });
        account
    }

    /// The allocations held when the request came, with their places.
    fn held(&self, op: usize) -> Vec<Held> {
        let program = &self.recording.program;
        let events = &self.device.events;
        let mut namer = self.namer();
        change::held(program, op)
            .into_iter()
            .map(|(slot, at)| {
                let event = event_of(self.recording, events, at);
                let stack = events.stack.get(event).copied().unwrap_or(StackId::NONE);
                let stack = if at < program.preamble { StackId::NONE } else { stack };
                let bytes = match program.ops[at] {
                    Op::Malloc { size, .. } => size,
                    _ => 0,
                };
                Held { slot, op: at, bytes, place: namer.stack(stack) }
            })
            .collect()
    }
}

/// A size in words, for messages of this module.
pub(super) fn human(bytes: u64) -> String {
    Human(bytes).to_string()
}

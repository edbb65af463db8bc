//! What is to be replayed, and the replays themselves.

use std::path::Path;
use std::sync::Arc;

use vramwise_model::settings::Config;
use vramwise_replay::{
    Addresses, Conditions, DropIn, Outcome, Recording, Under, VerifyOptions, recorded_under,
    replayed_snapshot, what_if,
};
use vramwise_trace::{DeviceTrace, Snapshot};
use vramwise_types::{Action, TorchVersion};

use super::{Args, drop_in};
use crate::context::Context;
use crate::failure::Failure;
use crate::input;

/// Everything that the arguments and the file together ask for.
pub(super) struct Request {
    pub(super) version: TorchVersion,
    /// Settings at the begin of the recording, and their changes in it.
    pub(super) recorded: Under,
    /// Other settings than the recorded ones.
    pub(super) conf: Option<Config>,
    changes: Vec<(usize, Config)>,
    pub(super) capacity: Option<u64>,
    pub(super) total: Option<u64>,
    addresses: Option<Arc<[u64]>>,
    /// Whether vramwise's allocator is to be replayed too.
    drop_in: bool,
    /// Whether the version is a guess from the file.
    guessed: bool,
}

/// The recording and, where something else was asked, what would have been.
pub(super) struct Answer {
    pub(super) recording: Recording,
    pub(super) what_if: Option<WhatIf>,
    /// What vramwise's allocator would have held.
    pub(super) drop_in: Option<DropIn>,
    pub(super) assumptions: Vec<String>,
}

/// A what-if replay and the same under other address orders.
pub(super) struct WhatIf {
    pub(super) outcome: Outcome,
    /// Smallest and largest peak of reserved bytes.
    pub(super) peak_reserved: (i64, i64),
}

impl Answer {
    /// Whether the exit status is 0: exact, or a what-if without failed request.
    pub(super) fn is_fine(&self) -> bool {
        if self.drop_in.as_ref().is_some_and(|d| !d.ooms.is_empty()) {
            return false;
        }
        match &self.what_if {
            // Of what is behind a divergence nothing is known, so that the answer is about a part of the run.
            Some(_) if self.recording.first_divergence.is_some() => false,
            Some(what_if) => what_if.outcome.ooms.is_empty(),
            None => self.recording.is_exact(),
        }
    }
}

impl Request {
    pub(super) fn new(
        args: &Args,
        snapshot: &Snapshot,
        device: &DeviceTrace,
        context: &Context,
    ) -> Result<Self, Failure> {
        let version = input::version(args.torch, snapshot);
        let recorded = recorded_under(snapshot, device, version);
        let conf = args.conf.as_ref().map(|text| input::settings(text, version)).transpose()?;
        let mut changes = Vec::new();
        let mut at_event: Vec<_> = args.conf_at.iter().collect();
        at_event.sort_by_key(|change| change.event);
        let mut current = conf.clone().unwrap_or_else(|| recorded.config.clone());
        if conf.is_none() {
            // What was asked holds from its first event on; up to there things are as they were.
            let first = at_event.first().map_or(u64::MAX, |change| change.event);
            let before = recorded.changes.iter().filter(|(event, _)| (*event as u64) < first);
            changes.extend(before.cloned());
            if let Some((_, config)) = changes.last() {
                current = config.clone();
            }
        }
        for change in at_event {
            let event = usize::try_from(change.event).unwrap_or(usize::MAX);
            if event >= device.events.len() {
                return Err(Failure::new(format!(
                    "--conf-at names event {event}, the history has {} (0 to {})",
                    device.events.len(),
                    device.events.len().saturating_sub(1)
                )));
            }
            current = input::settings_onto(&current, &change.conf, version)?;
            changes.push((event, current.clone()));
        }
        let fraction = |config: &Config| config.per_process_memory_fraction < 1.0;
        let asked = conf.iter().chain(changes.iter().map(|(_, config)| config));
        if args.total.is_none() && asked.into_iter().any(fraction) {
            context.warn(
                "per_process_memory_fraction is a part of the card's memory, which is not known here, so that \
                 it limits nothing: give the card's size with --total, or the limit itself with --capacity",
            );
        }
        let addresses =
            args.addresses.as_deref().map(|path| segment_addresses(path, context)).transpose()?;
        Ok(Self {
            version,
            recorded,
            conf,
            changes,
            capacity: args.capacity,
            total: args.total,
            addresses,
            drop_in: args.allocator == super::Allocator::Vramwise,
            guessed: args.torch.is_none(),
        })
    }

    /// Whether the question is what would have been, rather than what was.
    fn is_what_if(&self) -> bool {
        self.conf.is_some() || self.addresses.is_some()
    }

    /// The state and history at the end of the replay, as a snapshot.
    pub(super) fn emit(
        &self,
        source: &Snapshot,
        device: u32,
        answer: &Answer,
    ) -> (Snapshot, Outcome) {
        let addresses = match &self.addresses {
            Some(addrs) => Addresses::Listed(Arc::clone(addrs)),
            None => Addresses::Driver,
        };
        let mut conditions = self.conditions(addresses, answer.recording.version);
        if answer.what_if.is_none() {
            conditions.limit = answer.recording.limit;
        }
        replayed_snapshot(source, device, &answer.recording, &conditions)
    }

    fn conditions(&self, addresses: Addresses, version: TorchVersion) -> Conditions {
        Conditions {
            config: self.conf.clone().unwrap_or_else(|| self.recorded.config.clone()),
            changes: self.changes.clone(),
            version,
            limit: self.capacity,
            total: self.total,
            addresses,
        }
    }
}

/// Addresses of the new segments of another recording, in order.
fn segment_addresses(path: &Path, context: &Context) -> Result<Arc<[u64]>, Failure> {
    let snapshot = input::read(path, context)?;
    let events = snapshot.devices.iter().map(|d| &d.events).find(|e| !e.is_empty());
    let Some(events) = events else {
        return Err(
            Failure::new("there is no history to take addresses from").at(input::shown(path))
        );
    };
    let new = |i: &usize| events.action[*i] == Action::SegmentAlloc;
    Ok((0..events.len()).filter(new).map(|i| events.addr[i]).collect())
}

/// Verifies, then replays what was asked.
pub(super) fn answer(request: &Request, device: &DeviceTrace) -> Answer {
    let mut options = request.recorded.verify(request.version);
    options.total = request.total;
    options.limit = request.capacity;
    options.other_ties = request.guessed;
    if !request.is_what_if() {
        options.changes = request.changes.clone();
    }
    let (mut recording, mut another_card) = input::verify(device, &options);
    if recording.first_divergence.is_some() && options.changes != request.recorded.changes {
        // Settings that did not change then: the change is a question, not a fact about the recording.
        let unchanged = VerifyOptions { changes: request.recorded.changes.clone(), ..options };
        let (without, _) = input::verify(device, &unchanged);
        if without.first_divergence.is_none() {
            (recording, another_card) = (without, true);
        }
    }
    let mut assumptions = request.recorded.notes.clone();
    assumptions.append(&mut recording.assumptions);
    if let Some(divergence) = recording.first_divergence.as_ref().filter(|_| request.is_what_if()) {
        assumptions.insert(
            0,
            format!(
                "the model parts from the recording at event {} of {}: what would have been is known up to there \
                 alone, and every figure here is of that part; replay without other settings shows what differs",
                divergence.event,
                device.events.len()
            ),
        );
    }
    // Where nothing can be compared, there is still what PyTorch's allocator would have done.
    let asks = request.is_what_if() || another_card || recording.requests_only;
    let what_if = asks.then(|| replay(request, &recording, &mut assumptions));
    let drop_in = request.drop_in.then(|| drop_in::replay(request, &recording, &mut assumptions));
    Answer { recording, what_if, drop_in, assumptions }
}

/// Orders of addresses that a what-if is tried under when a tie could change it.
const OTHER_ORDERS: [Addresses; 4] =
    [Addresses::Rising, Addresses::Falling, Addresses::Shuffled(1), Addresses::Shuffled(2)];

fn replay(request: &Request, recording: &Recording, assumptions: &mut Vec<String>) -> WhatIf {
    let addresses = match &request.addresses {
        Some(addrs) => Addresses::Listed(Arc::clone(addrs)),
        None => Addresses::Driver,
    };
    let run = |addresses| {
        let conditions = request.conditions(addresses, recording.version);
        what_if(&recording.program, &recording.calls, &conditions)
    };
    let peak = |o: &Outcome| o.stats.all(vramwise_model::stats::Family::ReservedBytes).peak;
    let outcome = run(addresses);
    let mut range = (peak(&outcome), peak(&outcome));
    if outcome.ties > 0 && request.addresses.is_none() {
        for order in OTHER_ORDERS {
            let other = peak(&run(order));
            range = (range.0.min(other), range.1.max(other));
        }
        if range.0 != range.1 {
            assumptions.push(format!(
                "free blocks of equal size are told apart by the addresses that the driver gives; \
                 over {} address orders the peak of reserved memory is {} to {} bytes",
                OTHER_ORDERS.len() + 1,
                range.0,
                range.1
            ));
        }
    }
    if !recording.ooms.is_empty() {
        assumptions.push(
            "the recorded program ran out of memory: what it would have done otherwise is not known, \
             so that a what-if holds up to the first failed request"
                .to_owned(),
        );
    }
    WhatIf { outcome, peak_reserved: range }
}

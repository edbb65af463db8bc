//! Puts the answer together: which source the figures come from, which moments are looked at.

use std::ops::Range;

use vramwise_model::stats::Family;
use vramwise_replay::{Conditions, Recording, recorded_under};
use vramwise_trace::{Description, DeviceTrace, HistoryFacts, Snapshot, StackId, describe};
use vramwise_types::Action;

use super::alone::Alone;
use super::clock::Clock;
use super::curve::High;
use super::holders::{By, Namer};
use super::memory::memory;
use super::notes::{contradiction, what_history_lacks, why_no_replay};
use super::pinned::{PinnedAt, pins};
use super::replayed::Replayed;
use super::source::{Moment, Source};
use super::state::State;
use super::{At, DeviceInspection, Evidence, Inspection, Options, Peak, Peaks, Refusal, When};
use crate::stacks::Sampled;

/// Says where the memory of every device was.
///
/// # Errors
/// [`Refusal`] where there is nothing to look at.
pub fn inspect(snapshot: &Snapshot, options: &Options) -> Result<Inspection, Refusal> {
    let count = snapshot.devices.len();
    if let Some(number) = options.device
        && number as usize >= count
    {
        return Err(Refusal::NoDevice(number, count));
    }
    let holds = |d: &DeviceTrace| !d.events.is_empty() || !d.segments.is_empty();
    let chosen = (0u32..)
        .zip(&snapshot.devices)
        .filter(|(n, d)| options.device.map_or(holds(d), |only| only == *n));
    let description = describe(snapshot);
    let devices = chosen
        .map(|(number, device)| one(snapshot, number, device, &description, options))
        .collect::<Result<Vec<_>, _>>()?;
    if devices.iter().all(|d| d.memory.reserved == 0 && d.events == 0) {
        return Err(Refusal::Nothing);
    }
    Ok(Inspection { devices, warnings: description.warnings })
}

/// One device while it is looked at.
struct Look<'a> {
    snapshot: &'a Snapshot,
    number: u32,
    device: &'a DeviceTrace,
    options: &'a Options,
    clock: Clock<'a>,
    source: Source<'a>,
    end: State,
    window: Option<Range<usize>>,
    /// The history begins with an empty allocator: nothing happened before it.
    whole: bool,
}

fn one(
    snapshot: &Snapshot,
    number: u32,
    device: &DeviceTrace,
    description: &Description,
    options: &Options,
) -> Result<DeviceInspection, Refusal> {
    let events = device.events.len();
    if let At::Event(event) = options.at
        && event >= events
    {
        return Err(Refusal::NoEvent(event, events));
    }
    let window = window(options, events)?;
    let mut under = recorded_under(snapshot, device, options.version);
    let (config, mut assumptions) = (under.config.clone(), std::mem::take(&mut under.notes));
    let facts = description.devices.iter().find(|d| d.device == number as usize).map(|d| &d.facts);
    let empty = facts.is_some_and(HistoryFacts::starts_empty);
    let missing_frees = facts.map_or(0, |f| f.live_not_shown + f.double_allocs);
    let mut verify = under.verify(options.version);
    verify.limit = options.capacity;
    let recording = (events > 0 && empty).then(|| Recording::verify(device, &verify));
    let verified = recording.as_ref().filter(|r| r.is_exact());
    let replayed = verified.and_then(|recording| {
        let conditions = Conditions {
            changes: verify.changes.clone(),
            ..Conditions::new(config.clone(), options.version)
        };
        Replayed::new(device, recording, &conditions, window.as_ref(), options.columns)
    });
    let evidence = match (events, &replayed) {
        (0, _) => Evidence::State,
        (_, Some(_)) => Evidence::Replay,
        (_, None) => Evidence::History(why_no_replay(recording.as_ref())),
    };
    match (&evidence, &recording) {
        (Evidence::Replay, Some(recording)) => assumptions.extend(recording.assumptions.clone()),
        (Evidence::History(_), _) => assumptions.extend(what_history_lacks(empty, missing_frees)),
        _ => assumptions.clear(),
    }
    let source = match replayed {
        Some(replayed) => Source::Replay(Box::new(replayed)),
        None => {
            let alone = Alone::new(device, &config, window.clone(), options.columns);
            Source::Alone(Box::new(alone))
        }
    };
    let older = |addr| matches!(&source, Source::Alone(a) if a.is_before(addr));
    let end = State::at_end(device, older);
    let clock = Clock::new(snapshot, number, device);
    let counted = verified.filter(|_| window.is_none());
    let look = Look { snapshot, number, device, options, clock, source, end, window, whole: empty };
    Ok(look.inspection(evidence, assumptions, counted))
}

/// The part of the history that is asked for; `None` = all of it.
fn window(options: &Options, events: usize) -> Result<Option<Range<usize>>, Refusal> {
    if options.from.is_none() && options.to.is_none() || events == 0 {
        return Ok(None);
    }
    let (from, to) = (options.from.unwrap_or(0), options.to.unwrap_or(events - 1));
    for event in [from, to] {
        if event >= events {
            return Err(Refusal::NoEvent(event, events));
        }
    }
    if from > to {
        return Err(Refusal::Backwards(from, to));
    }
    Ok(Some(from..to + 1))
}

impl Look<'_> {
    fn inspection(
        &self,
        evidence: Evidence,
        assumptions: Vec<String>,
        counted: Option<&Recording>,
    ) -> DeviceInspection {
        let (device, events) = (self.device, self.device.events.len());
        let ooms = self.ooms();
        let chosen = self.chosen();
        let failed = ooms.first().map(|(event, _)| self.source.moment_at(*event));
        let steps: Vec<usize> = [Some(chosen), failed]
            .into_iter()
            .flatten()
            .filter_map(|m| if let Moment::Step(step) = m { Some(step) } else { None })
            .collect();
        let states = self.source.states(&steps);
        let nothing = State { segments: Some(Vec::new()), exact: true, ..State::default() };
        let state = |moment: Moment| match moment {
            Moment::Step(step) => states.get(&step).unwrap_or(&nothing),
            Moment::End => &self.end,
            Moment::Start => &nothing,
        };
        let name = match self.options.at {
            At::Event(_) => "event",
            At::End => "end",
            At::Peak => "peak",
        };
        let moments = [(name, Some(chosen)), ("out of memory", failed), ("end", Some(Moment::End))];
        let mut by_stack = Namer::new(self.snapshot, By::Stack, self.options.frames);
        let mut seen: Vec<Moment> = Vec::new();
        let mut pinned: Vec<PinnedAt> = Vec::new();
        for (moment, at) in moments {
            let Some(at) = at.filter(|at| !seen.contains(at)) else { continue };
            seen.push(at);
            let pins = pins(state(at), &mut by_stack);
            if !pins.is_empty() {
                pinned.push(PinnedAt { moment, when: self.when(at, chosen), pins });
            }
        }
        let at = if events == 0 { At::End } else { self.options.at };
        let of = (self.number, device);
        let at_when = (at, self.when(chosen, chosen));
        DeviceInspection {
            device: self.number,
            events,
            evidence,
            assumptions,
            peaks: (events > 0).then(|| self.peaks(counted)),
            timeline: self.source.curve().1.to_vec(),
            ooms,
            memory: memory(self.snapshot, of, at_when, state(chosen), self.options),
            pinned,
            sampled: Sampled::of(self.snapshot, self.number, device),
            has_stacks: device.events.stack.iter().any(|s| *s != StackId::NONE)
                || device.blocks.iter().any(|b| b.stack != StackId::NONE),
        }
    }

    /// The requests that found no memory.
    fn ooms(&self) -> Vec<(usize, u64)> {
        let events = &self.device.events;
        (0..events.len())
            .filter(|i| events.action[*i] == Action::Oom)
            .map(|i| (i, events.size[i]))
            .collect()
    }

    /// The moment that was asked for.
    fn chosen(&self) -> Moment {
        match self.options.at {
            _ if self.device.events.is_empty() => Moment::End,
            At::Peak => Moment::Step(self.source.curve().0.allocated.step),
            At::End => Moment::End,
            At::Event(event) => self.source.moment_at(event),
        }
    }

    fn when(&self, moment: Moment, chosen: Moment) -> When {
        let event = match (self.options.at, moment) {
            // The event that was asked for, whichever entry of its operation it is.
            (At::Event(event), _) if moment == chosen => Some(event),
            (At::Peak, Moment::Step(step)) if moment == chosen => Some(self.event_within(step)),
            (_, Moment::Step(step)) => Some(self.source.event_of(step)),
            (_, Moment::Start) => Some(0),
            (_, Moment::End) => None,
        };
        self.clock.when(event)
    }

    /// The event of a step; what was carried into the part that is looked at counts from its beginning.
    fn event_within(&self, step: usize) -> usize {
        let event = self.source.event_of(step);
        self.window.as_ref().map_or(event, |w| event.clamp(w.start, w.end - 1))
    }

    /// The peaks: what a verification counted, where there is an exact one, else what the source saw.
    fn peaks(&self, verified: Option<&Recording>) -> Peaks {
        let (curve, _) = self.source.curve();
        let is_replay = matches!(self.source, Source::Replay(_));
        // More may have been held before a history that began in mid-run; a part of it that was asked
        // for is all there.
        let shown = self.whole || self.window.is_some();
        let peak = |high: High, family: Family, from_history: bool| {
            let counted = verified.and_then(|r| u64::try_from(r.stats.all(family).peak).ok());
            Peak {
                bytes: counted.unwrap_or(high.bytes),
                exact: counted.is_some() || (from_history && shown) || is_replay,
                when: self.clock.when(Some(self.event_within(high.step))),
            }
        };
        let mut peaks = Peaks {
            allocated: peak(curve.allocated, Family::AllocatedBytes, false),
            reserved: peak(curve.reserved, Family::ReservedBytes, true),
            active: peak(curve.active, Family::ActiveBytes, false),
            requested: peak(curve.requested, Family::RequestedBytes, true),
            impossible: None,
        };
        peaks.impossible = contradiction(&peaks);
        if peaks.impossible.is_some() {
            for peak in
                [&mut peaks.allocated, &mut peaks.reserved, &mut peaks.active, &mut peaks.requested]
            {
                peak.exact = false;
            }
        }
        peaks
    }
}

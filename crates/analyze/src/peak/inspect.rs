//! Puts the answer together: which source the figures come from, which moments are looked at.

use std::collections::BTreeMap;

use vramwise_model::stats::Family;
use vramwise_replay::{Conditions, Recording, VerifyOptions, recorded_config};
use vramwise_trace::{
    BlockState, Description, DeviceTrace, HistoryFacts, Snapshot, StackId, describe,
};
use vramwise_types::Action;

use super::alone::Alone;
use super::curve::{Column, Curve, High};
use super::holders::{By, Namer, groups};
use super::phase::Phases;
use super::pinned::{PinnedAt, pins};
use super::replayed::Replayed;
use super::state::State;
use super::waste::free_memory;
use super::{
    Amount, At, DeviceInspection, Evidence, Inspection, Memory, Options, Peak, Peaks, Phase,
    Refusal, When,
};

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

/// Where figures come from.
enum Source<'a> {
    Replay(Box<Replayed<'a>>),
    Alone(Box<Alone<'a>>),
}

/// A moment to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// A step of the source's curve.
    Step(usize),
    /// The snapshot's own state.
    End,
    /// Before everything.
    Start,
}

impl Source<'_> {
    fn curve(&self) -> (&Curve, &[Column]) {
        match self {
            Source::Replay(r) => (&r.curve, &r.timeline),
            Source::Alone(a) => (&a.curve, &a.timeline),
        }
    }

    fn event_of(&self, step: usize) -> usize {
        match self {
            Source::Replay(r) => r.event_of(step),
            Source::Alone(_) => step.saturating_sub(1),
        }
    }

    fn moment_at(&self, event: usize) -> Moment {
        match self {
            Source::Replay(r) => r.op_at(event).map_or(Moment::Start, Moment::Step),
            Source::Alone(_) => Moment::Step(event + 1),
        }
    }

    /// The states after these steps.
    fn states(&self, steps: &[usize]) -> BTreeMap<usize, State> {
        match self {
            Source::Replay(r) => r.states(steps.iter().copied()),
            Source::Alone(a) => steps.iter().map(|s| (*s, a.state_after(*s))).collect(),
        }
    }
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
    let clock = Clock::new(snapshot, number, device);
    let (config, mut assumptions) = recorded_config(snapshot.settings.as_ref(), options.version);
    let facts = description.devices.iter().find(|d| d.device == number as usize).map(|d| &d.facts);
    let empty = facts.is_some_and(HistoryFacts::starts_empty);
    let missing_frees = facts.map_or(0, |f| f.live_not_shown + f.double_allocs);
    let mut verify = VerifyOptions::new(config.clone(), options.version);
    verify.limit = options.capacity;
    let recording = (events > 0 && empty).then(|| Recording::verify(device, &verify));
    let replayed = recording.as_ref().filter(|r| r.is_exact()).and_then(|recording| {
        let conditions = Conditions::new(config.clone(), options.version);
        Replayed::new(device, recording, &conditions, options.columns)
    });
    let evidence = if events == 0 {
        Evidence::State
    } else if replayed.is_some() {
        Evidence::Replay
    } else {
        Evidence::History(why_no_replay(recording.as_ref()))
    };
    let source = match replayed {
        Some(replayed) => Source::Replay(Box::new(replayed)),
        None => Source::Alone(Box::new(Alone::new(device, &config, options.columns))),
    };
    match (&evidence, &recording) {
        (Evidence::Replay, Some(recording)) => assumptions.extend(recording.assumptions.clone()),
        (Evidence::History(_), _) => assumptions.extend(what_history_lacks(empty, missing_frees)),
        _ => assumptions.clear(),
    }
    let ooms: Vec<(usize, u64)> = (0..events)
        .filter(|i| device.events.action[*i] == Action::Oom)
        .map(|i| (i, device.events.size[i]))
        .collect();
    let (curve, timeline) = source.curve();
    let chosen = match options.at {
        _ if events == 0 => Moment::End,
        At::Peak => Moment::Step(curve.allocated.step),
        At::End => Moment::End,
        At::Event(event) => source.moment_at(event),
    };
    let failed = ooms.first().map(|(event, _)| source.moment_at(*event));
    let steps: Vec<usize> = [Some(chosen), failed]
        .into_iter()
        .flatten()
        .filter_map(|m| if let Moment::Step(step) = m { Some(step) } else { None })
        .collect();
    let states = source.states(&steps);
    let older = |addr| matches!(&source, Source::Alone(a) if a.is_before(addr));
    let end = State::at_end(device, older);
    let nothing = State { segments: Some(Vec::new()), exact: true, ..State::default() };
    let state = |moment: Moment| match moment {
        Moment::Step(step) => states.get(&step).unwrap_or(&nothing),
        Moment::End => &end,
        Moment::Start => &nothing,
    };
    let event_of = |moment: Moment| match moment {
        Moment::Step(step) => Some(source.event_of(step)),
        Moment::Start => Some(0),
        Moment::End => None,
    };
    let when = |moment: Moment| match options.at {
        // The event that was asked for, whichever entry of its operation it is.
        At::Event(event) if moment == chosen => clock.when(Some(event)),
        _ => clock.when(event_of(moment)),
    };
    let name = match options.at {
        At::Event(_) => "event",
        At::End => "end",
        At::Peak => "peak",
    };
    let moments = [(name, Some(chosen)), ("out of memory", failed), ("end", Some(Moment::End))];
    let mut by_stack = Namer::new(snapshot, By::Stack, options.frames);
    let mut seen: Vec<Moment> = Vec::new();
    let mut pinned: Vec<PinnedAt> = Vec::new();
    for (moment, at) in moments {
        let Some(at) = at.filter(|at| !seen.contains(at)) else { continue };
        seen.push(at);
        let pins = pins(state(at), &mut by_stack);
        if !pins.is_empty() {
            pinned.push(PinnedAt { moment, when: when(at), pins });
        }
    }
    let verified = recording.as_ref().filter(|r| r.is_exact());
    let peaks = (events > 0).then(|| peaks(&source, verified, &clock));
    let at = if events == 0 { At::End } else { options.at };
    let memory = memory(snapshot, at, when(chosen), state(chosen), options);
    let has_stacks = device.events.stack.iter().any(|s| *s != StackId::NONE)
        || device.blocks.iter().any(|b| b.stack != StackId::NONE);
    Ok(DeviceInspection {
        device: number,
        events,
        evidence,
        assumptions,
        peaks,
        timeline: timeline.to_vec(),
        ooms,
        memory,
        pinned,
        has_stacks,
    })
}

/// The peaks: what a verification counted, where there is an exact one, else what the source saw.
fn peaks(source: &Source<'_>, verified: Option<&Recording>, clock: &Clock<'_>) -> Peaks {
    let (curve, _) = source.curve();
    let peak = |high: High, family: Family, from_history: bool| {
        let counted = verified.and_then(|r| u64::try_from(r.stats.all(family).peak).ok());
        Peak {
            bytes: counted.unwrap_or(high.bytes),
            exact: counted.is_some() || from_history,
            when: clock.when(Some(source.event_of(high.step))),
        }
    };
    Peaks {
        allocated: peak(curve.allocated, Family::AllocatedBytes, false),
        reserved: peak(curve.reserved, Family::ReservedBytes, true),
        active: peak(curve.active, Family::ActiveBytes, false),
        requested: peak(curve.requested, Family::RequestedBytes, true),
    }
}

fn why_no_replay(recording: Option<&Recording>) -> String {
    let Some(recording) = recording else {
        return "the recording began in mid-run, or its ring buffer wrapped".to_owned();
    };
    if let Some(why) = &recording.impossible {
        return format!("no run of PyTorch's allocator can have written it: {why}");
    }
    if let Some(divergence) = &recording.first_divergence {
        return format!("the replay parts from the recording at event {}", divergence.event);
    }
    match &recording.final_difference {
        Some(difference) => format!("the replay ends in another state: {difference}"),
        None => "the limit under which requests failed is not known well enough to replay them (--capacity)"
            .to_owned(),
    }
}

fn what_history_lacks(empty: bool, missing_frees: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if !empty {
        notes.push(
            "peaks before the recording began are not known; blocks from that time are counted where \
             the history frees them or the final state shows them, and have no stack unless they are \
             still there"
                .to_owned(),
        );
    }
    if missing_frees > 0 {
        notes.push(format!(
            "at least {missing_frees} frees are missing in the history, so that figures may also be too high"
        ));
    }
    notes.push(
        "allocated and active bytes are lower bounds: a history has requested sizes, which are rounded \
         up here as the settings say, but a block can be larger than that"
            .to_owned(),
    );
    notes.push("free memory inside the segments is known at the end only (--at end)".to_owned());
    notes
}

fn memory(snapshot: &Snapshot, at: At, when: When, state: &State, options: &Options) -> Memory {
    let mut memory = Memory {
        at,
        when,
        exact: state.exact,
        reserved: state.reserved,
        allocated: Amount::default(),
        requested: 0,
        pending: Amount::default(),
        groups: groups(state.allocated(), &mut Namer::new(snapshot, options.by, options.frames)),
        without_stack: Amount::default(),
        before_recording: Amount::default(),
        free: free_memory(state),
    };
    for block in &state.blocks {
        match block.state {
            BlockState::Inactive => continue,
            BlockState::ActivePendingFree => {
                memory.pending.add(block.size);
                continue;
            }
            BlockState::ActiveAllocated => memory.allocated.add(block.size),
        }
        memory.requested = memory.requested.saturating_add(block.requested);
        if block.stack == StackId::NONE {
            memory.without_stack.add(block.size);
        }
        if block.before {
            memory.before_recording.add(block.size);
        }
    }
    memory
}

/// Tells the time and phase of events.
struct Clock<'a> {
    device: &'a DeviceTrace,
    phases: Phases<'a>,
    start: Option<u64>,
}

impl<'a> Clock<'a> {
    fn new(snapshot: &'a Snapshot, number: u32, device: &'a DeviceTrace) -> Self {
        let start = device.events.time_us.iter().copied().find(|t| *t > 0);
        Self { device, phases: Phases::new(snapshot, number), start }
    }

    fn when(&self, event: Option<usize>) -> When {
        let times = &self.device.events.time_us;
        let time = match event {
            Some(event) => times.get(event),
            None => times.last(),
        };
        let time = time.copied().filter(|t| *t > 0);
        When {
            event,
            since_start_us: time.zip(self.start).map(|(now, start)| now.saturating_sub(start)),
            phase: time.map_or_else(Phase::default, |t| self.phases.at(t)),
        }
    }
}

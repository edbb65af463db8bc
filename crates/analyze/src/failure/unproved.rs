//! What the history alone says of a failed request, where no replay reproduces it.

use vramwise_trace::{DeviceTrace, Snapshot, StackId};

use super::run::human;
use super::{Account, Advice, Cause, Failure, Limit, Options};
use crate::peak::holders::{By, Namer};

/// The failure at `event`, with the few numbers that need no replay.
pub(super) fn failure(
    snapshot: &Snapshot,
    device: &DeviceTrace,
    event: usize,
    options: &Options,
) -> Failure {
    let events = &device.events;
    let (asked, free) = (events.size[event], events.addr[event]);
    let held = held_before(device, event);
    let room = free >= asked;
    let (cause, confidence) = if room { (Cause::MemoryLimit, 0.5) } else { (Cause::Unknown, 0.2) };
    let mut why = vec![format!(
        "{} was asked for; the driver had {} free{}",
        human(asked),
        human(free),
        if room { ", more than that: a limit on the process refused, not the card" } else { "" }
    )];
    why.push(
        "the recording is not reproduced by a replay, so that neither the cause nor any advice can be \
         proved from it"
            .to_owned(),
    );
    let limit = options.capacity.unwrap_or(held);
    let stack = events.stack.get(event).copied().unwrap_or(StackId::NONE);
    Failure {
        event,
        time_us: events.time_us.get(event).copied().filter(|t| *t > 0),
        recorded: true,
        place: Namer::new(snapshot, By::Stack, options.frames).stack(stack),
        limit: Limit { low: limit, high: limit, given: options.capacity.is_some() },
        account: Account {
            asked,
            segment: asked,
            reserved: held,
            device_free: Some(free),
            ..Account::default()
        },
        cause,
        confidence,
        contributing: Vec::new(),
        why,
        advice: vec![Advice {
            action: "record the history from the start of the program, with the limit given by \
                     --capacity, and explain that"
                .to_owned(),
            evidence: "a whole recording can be replayed, and advice proved".to_owned(),
            trial: None,
        }],
        pinned: Vec::new(),
        holders: Vec::new(),
    }
}

/// Bytes held before an event, counted back from the end.
fn held_before(device: &DeviceTrace, event: usize) -> u64 {
    let mut held: i128 = device.segments.iter().map(|s| i128::from(s.total_size)).sum();
    let events = &device.events;
    for i in (event..events.len()).rev() {
        if events.action[i].is_growth() {
            held -= i128::from(events.size[i]);
        } else if events.action[i].is_release() {
            held += i128::from(events.size[i]);
        }
    }
    u64::try_from(held).unwrap_or(0)
}

//! What the history alone says of a failed request, where no replay reproduces it.

use vramwise_trace::{BlockState, Snapshot, StackId};

use super::recorded::Recorded;
use super::run::human;
use super::{Account, Advice, Cause, Failure, Limit, Options, pins};
use crate::peak::holders::{By, Namer};

/// The failure at `event`, with the few numbers that need no replay.
pub(super) fn failure(
    snapshot: &Snapshot,
    history: &Recorded<'_>,
    event: usize,
    options: &Options,
) -> Failure {
    let events = &history.device.events;
    let (asked, free) = (events.size[event], events.addr[event]);
    let state = history.before(event);
    let held = state.reserved;
    let mut account = Account {
        asked,
        segment: asked,
        reserved: held,
        device_free: Some(free),
        ..Account::default()
    };
    for piece in &state.blocks {
        match piece.state {
            BlockState::ActiveAllocated => {
                account.allocated = account.allocated.saturating_add(piece.size);
                account.requested = account.requested.saturating_add(piece.requested);
            }
            BlockState::ActivePendingFree => {
                account.pending = account.pending.saturating_add(piece.size);
            }
            BlockState::Inactive => {}
        }
    }
    let room = free >= asked;
    let (cause, confidence) = if room { (Cause::MemoryLimit, 0.5) } else { (Cause::Unknown, 0.2) };
    let mut why = vec![format!(
        "{} was asked for; the driver had {} free{}",
        human(asked),
        human(free),
        if room { ", more than that: a limit on the process refused, not the card" } else { "" }
    )];
    why.push(format!(
        "when the request came, the recording has {} reserved and at least {} allocated",
        human(held),
        human(account.allocated)
    ));
    why.push(
        "no further replay reproduces this failure, so that neither the cause nor any advice can be \
         proved"
            .to_owned(),
    );
    // The limit allowed all that was held, and not this request.
    let high = held.saturating_add(if room { asked.saturating_sub(1) } else { free });
    let limit = match options.capacity {
        Some(given) => Limit { low: given, high: given, given: true },
        None => Limit { low: history.peak().min(high), high, given: false },
    };
    let stack = events.stack.get(event).copied().unwrap_or(StackId::NONE);
    Failure {
        event,
        time_us: events.time_us.get(event).copied().filter(|t| *t > 0),
        recorded: true,
        proved: false,
        place: Namer::new(snapshot, By::Stack, options.frames).stack(stack),
        limit,
        account,
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
        holders: pins::holders(snapshot, &state, options.frames),
    }
}

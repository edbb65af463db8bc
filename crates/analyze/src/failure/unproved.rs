//! What the history alone says of a failed request, where no replay reproduces it.

use vramwise_trace::{Events, Producer, Snapshot, StackId};
use vramwise_types::Action;

use super::pools::{self, Route};
use super::recorded::Recorded;
use super::run::human;
use super::{Account, Advice, Cause, Failure, Limit, Options, pins};
use crate::peak::holders::{By, Namer};
use crate::peak::state::State;

/// The failure at `event`, with the few numbers that need no replay.
pub(super) fn failure(
    snapshot: &Snapshot,
    history: &Recorded<'_>,
    event: usize,
    options: &Options,
) -> Failure {
    let events = &history.device.events;
    let (asked, free) = (events.size[event], events.addr[event]);
    let before = history.before(event);
    let held = before.reserved;
    let end = State::at_end(history.device, |_| false);
    let later = later_changes(events, event);
    // Written right after the failure, the snapshot shows its moment: segments, pools and all.
    let is_moment = later == 0 && end.reserved == held;
    let state = if is_moment { &end } else { &before };
    let mut account = Account {
        asked,
        segment: asked,
        reserved: held,
        device_free: Some(free),
        ..Account::default()
    };
    let pool = events.pool_id.iter().find(|(row, _)| *row as usize == event);
    let route = Route {
        stream: events.stream_handle(event),
        pool: pool.map_or((0, 0), |(_, pool)| *pool),
        small: vramwise_model::size::is_small(asked),
    };
    pools::count(&mut account, state, route);
    let room = free >= asked;
    let absurd = Cause::is_absurd(asked, options.total);
    let (cause, confidence) = match (absurd, room) {
        (true, _) => (Cause::AbsurdRequest, 0.97),
        (false, true) => (Cause::MemoryLimit, 0.5),
        (false, false) => (Cause::Unknown, 0.2),
    };
    let mut why = vec![format!(
        "{} was asked for; the driver had {} free{}",
        human(asked),
        human(free),
        if room { ", more than that: a limit on the process refused, not the card" } else { "" }
    )];
    why.push(format!(
        "when the request came, the recording has {} reserved and {}{} allocated",
        human(held),
        if is_moment { "" } else { "at least " },
        human(account.allocated)
    ));
    why.push(pools_in_words(&account, &end, route, later, is_moment));
    if absurd {
        why.push(ABSURD.to_owned());
    }
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
        advice: vec![if absurd {
            print_shapes()
        } else if snapshot.producer == Producer::Vramwise {
            Advice {
                action: "replay the requests under PyTorch's allocator (vramwise replay, vramwise tune), or record the \
                         program without vramwise's and explain that"
                    .to_owned(),
                evidence: "which pages vramwise's allocator could have moved is not in a history".to_owned(),
                trial: None,
            }
        } else {
            Advice {
                action:
                    "record the history from the start of the program, with the limit given by \
                     --capacity, and explain that"
                        .to_owned(),
                evidence: "a whole recording can be replayed, and advice proved".to_owned(),
                trial: None,
            }
        }],
        pinned: if is_moment { pins::pinned(snapshot, &end, options.frames) } else { Vec::new() },
        holders: pins::holders(snapshot, state, options.frames),
    }
}

/// The reason where the request is of a size that no tensor has.
pub(super) const ABSURD: &str = "no setting, batch size or card helps; look for a product of dimensions that \
                                 should not be multiplied, or an index that overflowed";

/// What to do about such a request.
pub(super) fn print_shapes() -> Advice {
    Advice {
        action: "print the shapes that go into the failing line".to_owned(),
        evidence: "a size like this comes from multiplying the wrong dimensions, or from an index that is \
                   not initialised"
            .to_owned(),
        trial: None,
    }
}

/// Entries after the failure that change what is held.
fn later_changes(events: &Events, event: usize) -> usize {
    let changes = |i: &usize| {
        !matches!(events.action[*i], Action::Oom | Action::Snapshot | Action::UserDefined)
    };
    (event + 1..events.len()).filter(changes).count()
}

/// Where the free memory lay, as far as the file tells.
fn pools_in_words(
    account: &Account,
    end: &State,
    route: Route,
    later: usize,
    is_moment: bool,
) -> String {
    let mut at_end = Account::default();
    pools::count(&mut at_end, end, route);
    let free = if is_moment { account } else { &at_end };
    let lay = format!(
        "{} in pieces of at most {} where the request may go, {} on other streams, {} in other pools \
         ({} of it in private ones)",
        human(free.free_own),
        human(free.largest_own),
        human(free.free_streams),
        human(free.free_pools),
        human(free.free_private)
    );
    if is_moment {
        return format!(
            "the snapshot shows the moment of the failure; free inside the segments: {lay}"
        );
    }
    format!(
        "where free memory lay inside the segments at that moment is not known; at the end of the \
         recording, {later} entries later, it was {lay}"
    )
}

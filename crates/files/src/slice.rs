//! A part of a history, with the state at its end, so that it can be replayed like any recording.
//!
//! A snapshot shows the state at the end of its history only; readers find the state at the beginning by
//! going back from there. So a slice needs the segments and blocks at its own end: a replay tells them.
//! The cuts lie between operations of the allocator, so that no request is torn from its segment.

use std::ops::Range;

use vramwise_replay::{Cuts, VerifyOptions};
use vramwise_trace::{Annotation, DeviceTrace, Events, Snapshot};

/// A slice and what is to be known about it.
#[derive(Clone, Debug)]
pub struct Sliced {
    /// The part, as a snapshot of the one device.
    pub snapshot: Snapshot,
    /// The events of the original that it holds: those that were asked for, widened to whole operations.
    pub events: Range<usize>,
    /// Whether the state at its end is known to the byte; else some block sizes are estimates.
    pub exact: bool,
}

/// Keeps the events `range` of device `number`, and the state behind the last of them.
///
/// # Errors
/// Why the state cannot be known, in half a sentence.
///
/// # Panics
/// If there is no such device.
pub fn slice(
    snapshot: &Snapshot,
    number: u32,
    range: Range<usize>,
    options: &VerifyOptions,
) -> Result<Sliced, String> {
    let device = &snapshot.devices[number as usize];
    let cuts = Cuts::new(device, options);
    let end = range.end.min(device.events.len());
    let start = cuts.begin_before(range.start.min(end));
    let end = cuts.begin_after(end);
    let cut = cuts.state_before(end)?;
    let events = start..end;
    let mut devices = vec![DeviceTrace::default(); number as usize];
    devices.push(DeviceTrace {
        events: part(&device.events, &events),
        drop_in: device.drop_in,
        ..cut.state
    });
    let sliced = Snapshot {
        devices,
        annotations: annotations(snapshot, number, &device.events, &events),
        ..snapshot.clone()
    };
    Ok(Sliced { snapshot: sliced, events, exact: cut.exact })
}

/// The rows of a range.
fn part(events: &Events, range: &Range<usize>) -> Events {
    fn column<T: Clone>(column: &[T], range: &Range<usize>) -> Vec<T> {
        column.get(range.clone()).unwrap_or_default().to_vec()
    }
    fn sparse<T: Copy>(rows: &[(u32, T)], range: &Range<usize>) -> Vec<(u32, T)> {
        let inside = rows.iter().filter(|(row, _)| range.contains(&(*row as usize)));
        let first = u32::try_from(range.start).unwrap_or(u32::MAX);
        inside.map(|(row, value)| (row - first, *value)).collect()
    }
    Events {
        action: column(&events.action, range),
        addr: column(&events.addr, range),
        size: column(&events.size, range),
        stream: column(&events.stream, range),
        streams: events.streams.clone(),
        time_us: column(&events.time_us, range),
        stack: column(&events.stack, range),
        compile_context: sparse(&events.compile_context, range),
        user_metadata: sparse(&events.user_metadata, range),
        pool_id: sparse(&events.pool_id, range),
    }
}

/// The annotations whose time overlaps the range's; all where entries have no times.
fn annotations(
    snapshot: &Snapshot,
    device: u32,
    events: &Events,
    range: &Range<usize>,
) -> Vec<Annotation> {
    let ours = |a: &Annotation| a.device.is_none_or(|d| d == device);
    let times = events.time_us.get(range.clone()).unwrap_or_default();
    let timed = || times.iter().copied().filter(|t| *t > 0);
    let (Some(first), Some(last)) = (timed().min(), timed().max()) else {
        return snapshot.annotations.iter().filter(|a| ours(a)).cloned().collect();
    };
    let mut order: Vec<usize> = (0..snapshot.annotations.len()).collect();
    order.sort_by_key(|i| snapshot.annotations[*i].time_us);
    let mut keep = vec![false; order.len()];
    let mut open: Vec<usize> = Vec::new();
    for i in order {
        let mark = &snapshot.annotations[i];
        if mark.is_start {
            open.push(i);
            keep[i] = mark.time_us >= first && mark.time_us <= last;
            continue;
        }
        let same = |j: &usize| {
            let start = &snapshot.annotations[*j];
            (start.name, start.device) == (mark.name, mark.device)
        };
        let start = open.iter().rposition(same).map(|at| open.remove(at));
        let began = start.map_or(0, |j| snapshot.annotations[j].time_us);
        keep[i] = began <= last && mark.time_us >= first;
        if let Some(start) = start {
            keep[start] = keep[i];
        }
    }
    for i in open {
        keep[i] = snapshot.annotations[i].time_us <= last;
    }
    let kept = snapshot.annotations.iter().zip(keep).filter(|(a, keep)| *keep && ours(a));
    kept.map(|(a, _)| a.clone()).collect()
}

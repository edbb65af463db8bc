//! Traces that Perfetto and chrome://tracing open: the JSON trace event format.
//!
//! Each device is a process with two counters (bytes reserved, bytes requested by the program), the
//! largest blocks as slices from allocation to free, annotations as slices, and failed requests as marks.
//! Slices lie in as many rows as are needed for none to overlap another. Times are microseconds since the
//! first entry; without times, an event lasts a microsecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use vramwise_analyze::peak::place_name;
use vramwise_trace::{DeviceTrace, Snapshot};
use vramwise_types::{Action, Human};

use super::walk;

/// Blocks of one device that become slices: the largest ones.
const BLOCKS: usize = 10_000;

/// Writes the trace.
///
/// # Errors
/// Where writing fails.
pub fn write_perfetto(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut trace = Trace { out, first: true };
    trace.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    for (number, device) in snapshot.devices.iter().enumerate() {
        if !device.events.is_empty() {
            write_device(&mut trace, snapshot, number, device)?;
        }
    }
    trace.out.write_all(b"\n]}\n")?;
    trace.out.flush()
}

struct Trace<W> {
    out: W,
    first: bool,
}

impl<W: Write> Trace<W> {
    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }

    fn name(&mut self, what: &str, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        self.event(&serde_json::json!({
            "ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}
        }))
    }
}

/// A slice of a row.
struct Slice {
    start: u64,
    end: u64,
    name: String,
    args: serde_json::Value,
}

fn write_device<W: Write>(
    trace: &mut Trace<W>,
    snapshot: &Snapshot,
    number: usize,
    device: &DeviceTrace,
) -> io::Result<()> {
    let events = &device.events;
    let times = walk::times(events);
    // Process 0 is the idle process of a kernel.
    let pid = number + 1;
    trace.name("process_name", pid, 0, &format!("device {number}"))?;
    counters(trace, pid, device, &times)?;
    for i in (0..events.len()).filter(|i| events.action[*i] == Action::Oom) {
        trace.event(&serde_json::json!({
            "ph": "i", "s": "p", "pid": pid, "tid": 0, "ts": times[i],
            "name": format!("out of memory: {} asked", Human(events.size[i])),
            "args": {"event": i, "size_bytes": events.size[i], "device_free_bytes": events.addr[i]},
        }))?;
    }
    // Viewers take the thread with the number of its process for the main one and put it above the others.
    let first = pid;
    let row = rows(trace, pid, first, "annotations", annotations(snapshot, number, device))?;
    rows(trace, pid, row, "blocks", blocks(snapshot, device, &times))?;
    Ok(())
}

fn counters<W: Write>(
    trace: &mut Trace<W>,
    pid: usize,
    device: &DeviceTrace,
    times: &[u64],
) -> io::Result<()> {
    let events = &device.events;
    let start = walk::start(device);
    let requests = walk::has_requested(events);
    let mut levels = [("reserved", start.reserved), ("requested", start.requested)];
    let count = |trace: &mut Trace<W>, name: &str, ts: u64, bytes: i128| {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        trace.event(&serde_json::json!({
            "ph": "C", "pid": pid, "ts": ts, "name": name, "args": {"bytes": bytes}
        }))
    };
    for (name, bytes) in levels {
        count(trace, name, times.first().copied().unwrap_or(0), bytes)?;
    }
    for (i, ts) in times.iter().enumerate() {
        let (reserved, requested) = walk::change(events, i, requests);
        for ((name, level), change) in levels.iter_mut().zip([reserved, requested]) {
            if change != 0 {
                *level += change;
                count(trace, name, *ts, *level)?;
            }
        }
    }
    Ok(())
}

/// The largest blocks, from allocation to free or to the end.
fn blocks(snapshot: &Snapshot, device: &DeviceTrace, times: &[u64]) -> Vec<Slice> {
    let events = &device.events;
    let freed_by = walk::freed_by(events);
    let mut allocs: Vec<usize> =
        (0..events.len()).filter(|i| events.action[*i] == Action::Alloc).collect();
    allocs.sort_by_key(|i| (Reverse(events.size[*i]), *i));
    allocs.truncate(BLOCKS);
    let last = times.iter().copied().max().unwrap_or(0);
    let slice = |i: usize| {
        let freed = freed_by[i].and_then(|at| usize::try_from(at).ok());
        Slice {
            start: times[i],
            end: freed.map_or(last, |at| times[at]).max(times[i]),
            name: format!(
                "{} {}",
                Human(events.size[i]),
                place_name(snapshot, events.stack_of(i), 1)
            ),
            args: serde_json::json!({
                "size_bytes": events.size[i], "event": i, "freed_by_event": freed,
                "address": format!("{:#x}", events.addr[i]),
                "stream": events.stream_handle(i),
            }),
        }
    };
    allocs.into_iter().map(slice).collect()
}

fn annotations(snapshot: &Snapshot, number: usize, device: &DeviceTrace) -> Vec<Slice> {
    let first = device.events.time_us.iter().copied().filter(|t| *t > 0).min();
    let Some(first) = first else { return Vec::new() };
    let ours = |d: Option<u32>| d.is_none_or(|d| d as usize == number);
    let mut marks: Vec<_> = snapshot.annotations.iter().filter(|a| ours(a.device)).collect();
    marks.sort_by_key(|a| a.time_us);
    let last = marks.last().map_or(0, |a| a.time_us);
    let mut open = Vec::new();
    let mut slices = Vec::new();
    let mut push = |name, start: u64, end: u64| {
        slices.push(Slice {
            start: start.saturating_sub(first),
            end: end.saturating_sub(first),
            name: snapshot.strings.get(name).to_owned(),
            args: serde_json::json!({}),
        });
    };
    for mark in marks {
        if mark.is_start {
            open.push((mark.name, mark.time_us));
        } else if let Some(at) = open.iter().rposition(|(name, _)| *name == mark.name) {
            let (name, start) = open.remove(at);
            push(name, start, mark.time_us);
        }
    }
    for (name, start) in open {
        push(name, start, last);
    }
    slices
}

/// Writes slices in rows from thread `first` on, the first free row each; the thread after the last.
fn rows<W: Write>(
    trace: &mut Trace<W>,
    pid: usize,
    first: usize,
    name: &str,
    mut slices: Vec<Slice>,
) -> io::Result<usize> {
    slices.sort_by_key(|s| (s.start, Reverse(s.end)));
    let mut busy: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    let mut next = first;
    for slice in slices {
        while let Some(Reverse((end, row))) = busy.peek().copied() {
            if end > slice.start {
                break;
            }
            busy.pop();
            free.push(Reverse(row));
        }
        let row = match free.pop() {
            Some(Reverse(row)) => row,
            None => {
                trace.name("thread_name", pid, next, &format!("{name} {}", next - first + 1))?;
                trace.event(&serde_json::json!({
                    "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": next,
                    "args": {"sort_index": next}
                }))?;
                next += 1;
                next - 1
            }
        };
        // A slice of no length would share its moment with the next one of its row.
        busy.push(Reverse((slice.end.max(slice.start + 1), row)));
        trace.event(&serde_json::json!({
            "ph": "X", "pid": pid, "tid": row, "ts": slice.start,
            "dur": slice.end - slice.start, "name": slice.name, "args": slice.args
        }))?;
    }
    Ok(next)
}

//! Slices are recordings of their own.

use std::ops::Range;

use vramwise_files::slice;
use vramwise_replay::Recording;
use vramwise_trace::Snapshot;

use crate::{options, pickled, recording, through_a_file};

/// Slices, writes, reads, and replays the slice on its own.
fn replayed(snapshot: &Snapshot, range: Range<usize>) -> (Range<usize>, Recording) {
    let options = options(snapshot);
    let sliced = slice(snapshot, 0, range, &options).unwrap();
    assert!(sliced.exact);
    let back = through_a_file(&sliced.snapshot);
    assert_eq!(back.devices[0].events.len(), sliced.events.len());
    (sliced.events, Recording::verify(&back.devices[0], &options))
}

/// Windows of a history: halves, thirds, pieces that begin anywhere.
fn windows(events: usize) -> Vec<Range<usize>> {
    let mut windows =
        vec![0..events / 2, events / 2..events, events / 3..2 * events / 3, 1..events - 1];
    windows.extend((0..6).map(|i| events * (2 * i + 1) / 13..events * (2 * i + 2) / 13));
    windows
}

#[test]
fn slices_of_the_default_pool_replay_to_the_byte_from_anywhere() {
    for name in [
        "lstm_varlen__default",
        "lstm_varlen__expandable",
        "fuzz00__default",
        "streams__default",
        "oom_fragmented__default__stacks",
        "late_train__large12",
        "public/lm-train-200",
        "public/lm-train-midrun",
        "public/lm-forward-expandable",
    ] {
        let snapshot = recording(name);
        for window in windows(snapshot.devices[0].events.len()) {
            let (events, recording) = replayed(&snapshot, window.clone());
            assert!(events.start <= window.start && events.end >= window.end, "{name} {window:?}");
            let why = (&recording.first_divergence, &recording.final_difference);
            assert!(recording.is_exact(), "{name} {window:?} ({events:?}): {why:?}");
        }
    }
}

#[test]
fn slices_from_the_beginning_replay_to_the_byte_with_private_pools_too() {
    for name in
        ["cudagraph__default", "graphs_shared__default", "mempool__default", "pools2__default"]
    {
        let snapshot = recording(name);
        let events = snapshot.devices[0].events.len();
        for end in [events / 4, events / 2, 3 * events / 4, events] {
            let (_, recording) = replayed(&snapshot, 0..end);
            assert!(recording.is_exact(), "{name} 0..{end}: {:?}", recording.final_difference);
        }
    }
}

#[test]
fn pools_of_segments_that_are_still_there_are_known_in_mid_run() {
    for (name, window) in [("cudagraph__default", 137..583), ("graphs_shared__default", 261..522)] {
        let (_, recording) = replayed(&recording(name), window);
        assert!(recording.is_exact(), "{name}: {:?}", recording.first_divergence);
    }
}

#[test]
fn the_slice_of_everything_is_the_file() {
    for name in ["oom_fragmented__default__stacks", "cudagraph__default", "ring_fuzz__expandable"] {
        let snapshot = recording(name);
        let sliced = slice(&snapshot, 0, 0..usize::MAX, &options(&snapshot)).unwrap();
        assert_eq!(pickled(&sliced.snapshot), pickled(&snapshot), "{name}");
    }
}

#[test]
fn a_block_has_the_stack_of_the_line_that_allocated_it() {
    let snapshot = recording("oom_fragmented__default__stacks");
    let sliced = slice(&snapshot, 0, 0..200, &options(&snapshot)).unwrap();
    let (device, events) = (&sliced.snapshot.devices[0], &snapshot.devices[0].events);
    let mut seen = 0;
    for block in device.blocks.iter().filter(|b| b.state != vramwise_trace::BlockState::Inactive) {
        let alloc = (0..sliced.events.end)
            .rev()
            .find(|i| {
                events.action[*i] == vramwise_types::Action::Alloc
                    && events.addr[*i] == block.address
            })
            .unwrap();
        assert_eq!(block.stack, events.stack_of(alloc));
        seen += 1;
    }
    assert!(seen > 5);
}

#[test]
fn a_history_that_does_not_fit_its_state_is_refused() {
    let snapshot = recording("public/synthetic-mosaic");
    let why = slice(&snapshot, 0, 0..500, &options(&snapshot)).unwrap_err();
    assert!(why.contains("cannot be undone"), "{why}");
}

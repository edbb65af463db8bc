//! Worked example W18 of specification §13, and the rest of §5.2 and §5.3: uses on other streams.

use vramwise_model::StreamIndex;
use vramwise_model::stats::Family::*;

use crate::world::{World, world};

/// A world whose events wait.
fn holding() -> World {
    let mut w = world("");
    w.allocator.device_mut().inner_mut().hold_events();
    w
}

#[test]
fn w18_a_block_used_on_another_stream_waits_for_that_stream() {
    let mut w = holding();
    let s2 = w.allocator.stream(2);
    let x = w.alloc(4096);
    w.alloc(4096);
    w.allocator.record_stream(x, s2);
    w.entries();
    w.free(x);
    assert_eq!(w.current(Allocation), 1);
    assert_eq!(w.current(AllocatedBytes), 4096);
    assert_eq!(w.current(Active), 2);
    assert_eq!(w.current(ActiveBytes), 8192);
    assert_eq!(w.current(RequestedBytes), 8192);
    assert_eq!(w.layout("S0"), "pending 0/4096 · 4096/4096 · free 8192/2088960");
    assert_eq!(w.entries(), ["free_requested S0+0 4096"]);

    let z = w.alloc(4096);
    assert_eq!(w.place(z), "S0+8192/4096");
    assert_eq!(w.entries(), ["alloc S0+8192 4096"]);

    w.allocator.device_mut().inner_mut().complete_events();
    let again = w.alloc(4096);
    assert_eq!(w.place(again), "S0+0/4096");
    assert_eq!(w.entries(), ["free_completed S0+0 4096", "alloc S0+0 4096"]);
}

#[test]
fn w18_a_use_on_the_own_stream_changes_nothing() {
    let mut w = holding();
    let x = w.alloc(4096);
    w.allocator.record_stream(x, StreamIndex::DEFAULT);
    w.entries();
    w.free(x);
    assert_eq!(w.entries(), ["free_requested S0+0 4096", "free_completed S0+0 4096"]);
}

#[test]
fn w18_empty_cache_waits_for_pending_events() {
    let mut w = holding();
    let s2 = w.allocator.stream(2);
    let x = w.alloc(4096);
    w.allocator.record_stream(x, s2);
    w.free(x);
    w.entries();
    w.empty_cache();
    assert_eq!(w.entries(), ["free_completed S0+0 4096", "segment_free S0 2M"]);
    assert_eq!(w.numbers()[2], 1);
    assert_eq!(w.current(ReservedBytes), 0);
}

#[test]
fn a_block_used_on_two_streams_waits_for_both_and_on_one_stream_once() {
    let mut w = holding();
    let (s2, s3) = (w.allocator.stream(2), w.allocator.stream(3));
    let x = w.alloc(4096);
    for stream in [s2, s3, s2] {
        w.allocator.record_stream(x, stream);
    }
    w.free(x);
    w.process_events();
    assert_eq!(w.layout("S0"), "pending 0/4096 · free 4096/2093056");
    w.allocator.device_mut().inner_mut().complete_events();
    w.process_events();
    assert_eq!(w.layout("S0"), "free 0/2M");
    // Handed out again, the block has forgotten its uses.
    let x = w.alloc(4096);
    w.free(x);
    assert_eq!(w.layout("S0"), "free 0/2M");
}

#[test]
fn events_are_asked_for_by_every_malloc_even_on_another_stream_and_pool() {
    let mut w = holding();
    let s2 = w.allocator.stream(2);
    let x = w.alloc(4096);
    w.allocator.record_stream(x, s2);
    w.free(x);
    w.allocator.device_mut().inner_mut().complete_events();
    w.entries();
    w.alloc_on(s2, 50 << 20);
    assert_eq!(w.entries()[0], "free_completed S0+0 4096");
}

#[test]
fn a_told_completion_ends_a_pending_free_once() {
    let mut w = world("");
    let [x, y] = [w.alloc(4096), w.alloc(4096)];
    w.act(|a, history| a.free_pending(x, history));
    w.act(|a, history| a.free_pending(y, history));
    assert_eq!(w.layout("S0"), "pending 0/4096 · pending 4096/4096 · free 8192/2088960");
    w.alloc(4096);
    w.entries();
    assert!(w.act(|a, history| a.complete(y, history)));
    assert!(!w.act(|a, history| a.complete(y, history)));
    assert_eq!(w.entries(), ["free_completed S0+4096 4096"]);
    w.empty_cache();
    assert_eq!(w.entries(), ["free_completed S0+0 4096"]);
    assert!(!w.act(|a, history| a.complete(x, history)));
}

#[test]
fn uses_end_when_a_replay_says_that_the_free_is_pending() {
    let mut w = world("");
    let s2 = w.allocator.stream(2);
    let x = w.alloc(4096);
    w.allocator.record_stream(x, s2);
    w.act(|a, history| a.free_pending(x, history));
    assert!(w.act(|a, history| a.complete(x, history)));
    assert_eq!(w.layout("S0"), "free 0/2M");
    w.entries();
    let x = w.alloc(4096);
    w.free(x);
    assert_eq!(w.entries()[1..], ["free_requested S0+0 4096", "free_completed S0+0 4096"]);
}

//! Histories in impossible orders and of absurd sizes: they are refused by a divergence, never by a
//! panic, and in bounded time.

use proptest::prelude::*;
use vramwise_replay::{ANY_CARD, Conditions, DropInParams, drop_in, what_if};
use vramwise_types::TorchVersion;

use crate::common::{made, verify};

const ACTIONS: [&str; 8] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
];

fn entry() -> impl Strategy<Value = (&'static str, u64, u64)> {
    let addr = prop_oneof![
        (0u64..24).prop_map(|n| n << 20),
        (0u64..24).prop_map(|n| n * 512),
        (0u64..4).prop_map(|n| u64::MAX - n * 512),
        any::<u64>(),
    ];
    let size = prop_oneof![
        Just(0u64),
        Just(512),
        Just(2 << 20),
        Just(20 << 20),
        (0u64..64).prop_map(|n| 1 << n),
        (0u64..4).prop_map(|n| u64::MAX - n),
        (0u64..40 << 20).prop_map(|n| n / 512 * 512),
    ];
    (prop::sample::select(&ACTIONS[..]), addr, size)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn no_history_makes_a_replay_panic(
        entries in prop::collection::vec(entry(), 0..60),
        limit in prop::option::of(prop_oneof![Just(0u64), Just(64 << 20), any::<u64>()]),
    ) {
        let snapshot = made(&entries);
        if snapshot.devices.iter().any(|d| !d.events.is_empty()) {
            let _ = verify(&snapshot, limit);
        }
    }

    #[test]
    fn no_requests_of_another_allocator_make_a_replay_panic(entries in prop::collection::vec(entry(), 0..60)) {
        let mut snapshot = made(&entries);
        for device in &mut snapshot.devices {
            device.drop_in = true;
        }
        if snapshot.devices.iter().any(|d| !d.events.is_empty()) {
            let recording = verify(&snapshot, None);
            let conditions = Conditions::new(Default::default(), TorchVersion::default());
            let _ = what_if(&recording.program, &recording.calls, &conditions);
            let _ = drop_in(&recording.program, DropInParams::default(), ANY_CARD);
            let _ = recording.program.peak_live_bytes();
        }
    }
}

#[test]
fn a_history_of_many_idle_segments_ends_in_bounded_time() {
    // Each request asks the device although all segments before it are free: each is another pool's.
    let mut entries = Vec::new();
    for i in 0..30_000u64 {
        let addr = (i + 1) << 21;
        entries.push(("segment_alloc", addr, 2 << 20));
        entries.push(("alloc", addr, 512));
        entries.push(("free_requested", addr, 512));
        entries.push(("free_completed", addr, 512));
    }
    let recording = verify(&made(&entries), None);
    assert!(recording.first_divergence.is_some());
}

#[test]
fn frees_of_memory_that_was_never_allocated_diverge_at_that_entry() {
    let entries = [("segment_alloc", 2 << 20, 2 << 20), ("free_requested", 2 << 20, 512)];
    let recording = verify(&made(&entries), None);
    assert!(recording.first_divergence.is_some());
}

#[test]
fn the_smallest_histories_that_once_made_it_panic_do_not() {
    let unmaps = [("segment_unmap", 1 << 20, 512), ("segment_unmap", 0, 0), ("alloc", u64::MAX, 0)];
    let _ = verify(&made(&unmaps), None);
}

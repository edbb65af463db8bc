//! Recorded programs under the drop-in allocator.

use vramwise_replay::{DropIn, DropInParams, drop_in};

use crate::common::Recorded;

const CARD: u64 = 140 << 30;

fn held(name: &str) -> DropIn {
    let recording = Recorded::named(name).verify();
    let params = DropInParams { limit: recording.limit, ..DropInParams::default() };
    drop_in(&recording.program, params, CARD)
}

#[test]
fn programs_of_a_gibibyte_and_more_hold_at_most_a_hundredth_and_a_half_more_than_they_ask_for() {
    for name in
        ["moe__default", "lstm_varlen__default", "fuzz00__default", "oom_fragmented__default"]
    {
        let outcome = held(name);
        let ratio = outcome.ratio().unwrap();
        assert!((1.0..=1.015).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn small_programs_hold_a_few_pages_more() {
    let outcome = held("streams__default");
    let more = outcome.peak_held_bytes - outcome.peak_requested_bytes;
    assert!(more <= 12 << 20, "{more} bytes more");
}

#[test]
fn requests_beyond_the_limit_fail_and_take_nothing() {
    let recording = Recorded::named("lstm_varlen__default").verify();
    let limit = recording.program.peak_live_bytes() / 2;
    let params = DropInParams { limit: Some(limit), ..DropInParams::default() };
    let outcome = drop_in(&recording.program, params, CARD);
    assert!(!outcome.ooms.is_empty());
    assert!(outcome.peak_held_bytes <= limit);
}

#[test]
fn the_same_program_has_the_same_outcome() {
    assert_eq!(held("cudagraph__default"), held("cudagraph__default"));
}

//! Whole recordings, under their own settings and under wrong ones.

use vramwise_model::settings::Config;
use vramwise_replay::Recording;

use crate::common::{Recorded, counters_like, made, verify};

#[test]
fn every_entry_block_and_counter_of_a_recording_is_reproduced() {
    let names = [
        "lstm_varlen__default",
        "lstm_varlen__expandable",
        "streams__default",
        "oom_fragmented__default",
        "fuzz00__default",
        "fuzz03__expandable",
        "cudagraph__default",
    ];
    for name in names {
        let recorded = Recorded::named(name);
        let recording = recorded.verify();
        assert_eq!(recording.first_divergence, None, "{name}");
        assert_eq!(recording.final_difference, None, "{name}");
        assert!(recording.is_exact(), "{name}");
        let want = recorded.counters();
        assert_eq!(counters_like(&recording.stats, &want), want, "{name}");
    }
}

#[test]
fn a_wrong_setting_is_told_at_the_first_entry_that_it_does_not_explain() {
    let recorded = Recorded::named("lstm_varlen__expandable");
    let mut options = recorded.options();
    options.config = Config::default();
    let recording = Recording::verify(recorded.device(), &options);
    let divergence = recording.first_divergence.clone().unwrap();
    assert!(divergence.expected.starts_with("segment_map"), "{divergence:?}");
    assert!(divergence.got.starts_with("segment_alloc"), "{divergence:?}");
    assert!(!divergence.why.is_empty());
    assert!(!recording.is_exact());
    assert_eq!(recording.impossible, None, "wrong settings are no proof against the file");
}

#[test]
fn a_limit_that_was_not_given_is_inferred_from_failed_requests() {
    let recorded = Recorded::named("oom_fragmented__default");
    let limit = recorded.options().limit.unwrap();
    let mut options = recorded.options();
    options.limit = None;
    let recording = Recording::verify(recorded.device(), &options);
    assert!(recording.is_exact(), "{:?}", recording.first_divergence);
    let inferred = recording.limit.unwrap();
    assert!(inferred <= limit, "no more than was allowed: {inferred}");
    assert!(recording.assumptions.iter().any(|a| a.contains("--capacity")));
}

#[test]
fn memory_handed_out_twice_is_a_proof_that_no_caching_allocator_wrote_the_file() {
    let snapshot = made(&[
        ("segment_alloc", 1 << 21, 2 << 20),
        ("alloc", 1 << 21, 1024),
        ("alloc", 1 << 21, 1024),
    ]);
    let recording = verify(&snapshot, None);
    assert!(recording.first_divergence.is_some());
    assert!(recording.impossible.unwrap().contains("in use"));
}

//! Recordings made under vramwise's allocator: their requests are taken, their blocks are not compared.

use vramwise_model::stats::Family;
use vramwise_replay::{
    Conditions, Op, Program, Recording, VerifyOptions, recorded_config, what_if,
};
use vramwise_trace::{DeviceTrace, ReadOptions, RecordedSettings, Snapshot};
use vramwise_types::TorchVersion;

use crate::common::{Recorded, made};

/// The same history as if another allocator had made it.
fn as_drop_in(device: &DeviceTrace) -> DeviceTrace {
    DeviceTrace { drop_in: true, ..device.clone() }
}

fn requests(program: &Program) -> Vec<Op> {
    program.ops.iter().filter(|op| !matches!(op, Op::Release { .. })).copied().collect()
}

fn peak(recording: &Recording, options: &VerifyOptions) -> i64 {
    let mut conditions = Conditions::new(options.config.clone(), options.version);
    conditions.limit = options.limit;
    what_if(&recording.program, &recording.calls, &conditions).stats.all(Family::ReservedBytes).peak
}

#[test]
fn the_requests_of_a_history_are_those_that_a_verified_replay_finds() {
    for name in [
        "fuzz00__default",
        "fuzz03__expandable",
        "lstm_varlen__default",
        "moe__default",
        "streams__default",
    ] {
        let recorded = Recorded::named(name);
        let (options, verified) = (recorded.options(), recorded.verify());
        assert!(verified.is_exact() && !verified.requests_only);
        let taken = Recording::verify(&as_drop_in(recorded.device()), &options);
        assert!(taken.requests_only && !taken.is_exact(), "{name}");
        assert!(taken.first_divergence.is_none() && taken.impossible.is_none(), "{name}");
        assert_eq!(requests(&taken.program), requests(&verified.program), "{name}");
        assert_eq!(taken.program.streams, verified.program.streams);
        assert_eq!(taken.entries, verified.entries);
        assert!(taken.assumptions[0].starts_with("recorded under vramwise's allocator"));
    }
}

#[test]
fn what_pytorchs_allocator_would_hold_is_what_it_did_hold() {
    for name in [
        "fuzz00__default",
        "lstm_varlen__default",
        "lstm_varlen__expandable",
        "moe__default",
        "streams__default",
    ] {
        let recorded = Recorded::named(name);
        let options = recorded.options();
        let taken = Recording::verify(&as_drop_in(recorded.device()), &options);
        let held = recorded.verify().stats.all(Family::ReservedBytes).peak;
        assert_eq!(peak(&taken, &options), held, "{name}");
    }
}

#[test]
fn memory_that_is_given_back_without_a_request_is_a_call_of_empty_cache() {
    const MIB: u64 = 1 << 20;
    let at = |n: u64| n << 30;
    let history = |entries: &[(&str, u64, u64)]| {
        let snapshot = made(entries);
        let mut options = VerifyOptions::new(Default::default(), TorchVersion::default());
        options.other_ties = false;
        Recording::verify(&as_drop_in(&snapshot.devices[0]), &options)
    };
    let begin = [
        ("segment_map", at(1), 20 * MIB),
        ("alloc", at(1), 20 * MIB),
        ("free_requested", at(1), 20 * MIB),
        ("free_completed", at(1), 20 * MIB),
    ];
    let then = |more: &[(&str, u64, u64)]| history(&[&begin[..], more].concat());
    let releases = |recording: &Recording| {
        recording.program.ops.iter().filter(|op| matches!(op, Op::Release { .. })).count()
    };
    let given = then(&[("segment_unmap", at(1), 20 * MIB), ("alloc", at(2), 512)]);
    assert_eq!(releases(&given), 1);
    assert!(given.assumptions.iter().any(|a| a.contains("empty_cache() are inferred")));
    // Pages that move to where the request needs them.
    let moved = then(&[
        ("segment_unmap", at(1), 20 * MIB),
        ("segment_map", at(2), 30 * MIB),
        ("alloc", at(2), 30 * MIB),
    ]);
    assert_eq!(releases(&moved), 0);
    // A last attempt before the request fails, which PyTorch's allocator makes as well.
    let failed = then(&[("segment_unmap", at(1), 20 * MIB), ("oom", 5 * MIB, 30 * MIB)]);
    assert_eq!(releases(&failed), 0);
    assert_eq!(
        failed.limit,
        Some(20 * MIB),
        "what was held at most: 5 MiB were free beside nothing"
    );
    assert_eq!(failed.ooms, [(5, 30 * MIB)]);
}

#[test]
fn what_was_in_use_before_the_recording_began_comes_first() {
    let snapshot =
        made(&[("free_requested", 4096, 700), ("free_completed", 4096, 700), ("alloc", 4096, 900)]);
    let options = VerifyOptions::new(Default::default(), TorchVersion::default());
    let taken = Recording::verify(&as_drop_in(&snapshot.devices[0]), &options);
    let malloc = |size, slot| Op::Malloc { size, stream: 0, pool: 0, slot };
    assert_eq!(taken.program.ops, [malloc(700, 0), Op::Free { slot: 0 }, malloc(900, 1)]);
    assert_eq!(taken.program.preamble, 1);
}

#[test]
fn requests_that_contradict_each_other_are_told() {
    for entries in [
        &[("alloc", 4096, 700), ("alloc", 4096, 900)][..],
        &[
            ("alloc", 4096, 700),
            ("free_requested", 4096, 700),
            ("free_completed", 4096, 700),
            ("free_requested", 4096, 700),
            ("free_completed", 4096, 700),
        ],
        &[("alloc", 4096, 1 << 59), ("alloc", 8192, 1 << 59)],
        &[("alloc", 4096, 1 << 61)],
    ] {
        let snapshot = made(entries);
        let options = VerifyOptions::new(Default::default(), TorchVersion::default());
        let taken = Recording::verify(&as_drop_in(&snapshot.devices[0]), &options);
        assert!(taken.first_divergence.is_some(), "{entries:?}");
    }
}

#[test]
fn the_settings_are_those_that_pytorchs_allocator_would_have_had() {
    let config = |conf: &str| {
        let recorded = RecordedSettings {
            conf: conf.to_owned(),
            expandable_segments: true,
            ..RecordedSettings::default()
        };
        recorded_config(Some(&recorded), TorchVersion::default()).0
    };
    assert!(
        !config("backend:vramwise").expandable_segments,
        "the shim's word on how memory is mapped"
    );
    assert!(config("expandable_segments:True,backend:vramwise").expandable_segments);
    let read = |conf: &str| -> Snapshot {
        let text = format!(
            r#"{{"segments":[],"device_traces":[[]],"allocator_settings":{{"PYTORCH_CUDA_ALLOC_CONF":"{conf}"}}}}"#
        );
        vramwise_trace::read_slice(text.as_bytes(), &ReadOptions::default()).unwrap()
    };
    assert!(read("max_split_size_mb:64, backend:vramwise").devices[0].drop_in);
    assert!(!read("max_split_size_mb:64").devices[0].drop_in);
}

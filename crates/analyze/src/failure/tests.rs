//! Recordings that ran out of memory, and others under capacities that are too small for them.

use std::path::Path;

use vramwise_model::settings;
use vramwise_replay::{
    Conditions, Op, Program, Recording, VerifyOptions, recorded_config, what_if,
};
use vramwise_trace::{ReadOptions, Snapshot, read_path, read_slice};
use vramwise_types::{GIB, MIB, TorchVersion};

use super::change;
use super::*;

fn read(name: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots");
    let path = folder.join(format!("{name}.snapshot.pickle.gz"));
    read_path(&path, &ReadOptions::default()).expect("a recording of ours")
}

fn version(snapshot: &Snapshot) -> TorchVersion {
    snapshot.version_guess.unwrap_or(TorchVersion::REFERENCE)
}

fn explained(snapshot: &Snapshot, capacity: Option<u64>) -> Device {
    let options = Options { capacity, ..Options::new(version(snapshot)) };
    explain(snapshot, &options).swap_remove(0)
}

fn failure(name: &str, capacity: Option<u64>) -> Failure {
    explained(&read(name), capacity).failure.expect("a request fails")
}

fn recording(snapshot: &Snapshot) -> Recording {
    let (config, _) = recorded_config(snapshot.settings.as_ref(), version(snapshot));
    Recording::verify(&snapshot.devices[0], &VerifyOptions::new(config, version(snapshot)))
}

#[test]
fn a_limit_is_told_and_the_fragments_beside_it_are_put_down_to_their_line() {
    let device = explained(&read("oom_fragmented__default__stacks"), None);
    assert!(matches!(device.proof, Proof::Exact(489)));
    let failure = device.failure.expect("it ran out of memory");
    assert_eq!((failure.event, failure.recorded), (454, true));
    assert_eq!(failure.cause, Cause::MemoryLimit);
    assert!(failure.place.starts_with("train.py:203"), "{}", failure.place);
    assert_eq!(failure.contributing, [(Cause::Fragmentation, 149 * MIB)]);
    let fragments = failure.why.iter().find(|w| w.starts_with("fragmentation:"));
    assert!(fragments.is_some_and(|w| w.contains("train.py:199")), "{:?}", failure.why);
    assert!(failure.pinned[0].blocks[0].place.starts_with("train.py:199"));
    let first = failure.advice[0].trial.as_ref().expect("a proof");
    assert!(first.passes && first.all_fits());
}

#[test]
fn no_setting_is_advised_where_live_bytes_and_request_exceed_the_limit() {
    let failure = failure("oom_fragmented__default__stacks", Some(6 * GIB));
    assert_eq!(failure.cause, Cause::MemoryLimit);
    assert!(failure.limit.given && failure.account.needed() > failure.limit.high);
    assert!(failure.why.iter().any(|w| w.starts_with("no allocator setting can help")));
    for advice in &failure.advice {
        let trial = advice.trial.as_ref();
        let within = trial.is_some_and(|t| t.limit.is_some_and(|l| l <= 6 * GIB));
        assert!(!within || trial.is_some_and(|t| t.conf.is_empty()), "{advice:?}");
    }
}

#[test]
fn a_growing_batch_is_no_matter_of_settings() {
    let failure = failure("oom_growing_batch__default__stacks", Some(6 * GIB));
    assert_eq!((failure.cause, failure.recorded), (Cause::MemoryLimit, true));
    assert!(failure.why.iter().any(|w| w.starts_with("no allocator setting can help")));
    let first = failure.advice[0].trial.as_ref().expect("a proof");
    assert!(first.passes && first.limit.is_some_and(|l| l > 6 * GIB));
}

#[test]
fn a_setting_that_is_advised_lets_the_request_pass_in_a_replay_of_its_own() {
    let snapshot = read("fuzz00__default");
    let failure = explained(&snapshot, Some(4 * GIB)).failure.expect("it ran out of memory");
    assert_eq!((failure.cause, failure.recorded), (Cause::Fragmentation, true));
    assert!(failure.account.needed() <= 4 * GIB);
    let trial = failure.advice[0].trial.as_ref().expect("a proof");
    assert!(failure.advice[0].action.contains("CONF="), "{:?}", failure.advice[0]);
    let config = settings::parse(&trial.conf, version(&snapshot)).expect("a setting").config;
    let recording = recording(&snapshot);
    let conditions =
        Conditions { limit: Some(4 * GIB), ..Conditions::new(config, version(&snapshot)) };
    let outcome = what_if(&recording.program, &recording.calls, &conditions);
    assert!(outcome.ooms.iter().all(|oom| oom.event > failure.event), "{:?}", outcome.ooms);
}

#[test]
fn what_is_in_force_is_not_advised() {
    for (name, capacity) in
        [("late_train__large12", 300 * MIB), ("lstm_varlen__expandable", 200 * MIB)]
    {
        let snapshot = read(name);
        let device = explained(&snapshot, Some(capacity));
        let failure = device.failure.expect(name);
        for advice in &failure.advice {
            let sets = advice.action.starts_with("set ");
            let same = advice.trial.as_ref().is_some_and(|t| t.conf == device.conf);
            assert!(!(sets && same), "{name}: {advice:?}");
            let expandable = advice.action.contains("expandable_segments:True");
            assert!(!expandable || !device.conf.contains("expandable_segments:True"), "{advice:?}");
        }
    }
}

#[test]
fn private_pools_are_the_cause_where_one_pool_for_all_would_do() {
    let failure = failure("graphs_shared__default", Some(500 * MIB));
    assert_eq!(failure.cause, Cause::PrivatePools);
    assert!(failure.account.free_private > 0 && !failure.recorded);
    let pools = failure.advice.iter().find(|a| a.action.contains("private pools"));
    assert!(pools.is_some_and(|a| a.trial.as_ref().is_some_and(|t| t.passes)));
}

#[test]
fn a_capacity_that_is_enough_has_no_failure() {
    let device = explained(&read("moe__default"), Some(16 * GIB));
    assert!(device.failure.is_none() && device.peak_reserved.is_some());
}

#[test]
fn the_smallest_limit_that_is_told_is_one_that_suffices_and_less_does_not() {
    let snapshot = read("fuzz00__default");
    let failure = explained(&snapshot, Some(4 * GIB)).failure.expect("it ran out of memory");
    let card =
        failure.advice.iter().find(|a| a.action.starts_with("raise the limit")).expect("advice");
    let limit = card.trial.as_ref().and_then(|t| t.limit).expect("a limit");
    let recording = recording(&snapshot);
    let fails = |limit| {
        let (config, _) = recorded_config(snapshot.settings.as_ref(), version(&snapshot));
        let conditions =
            Conditions { limit: Some(limit), ..Conditions::new(config, version(&snapshot)) };
        let outcome = what_if(&recording.program, &recording.calls, &conditions);
        outcome.ooms.iter().any(|oom| oom.event <= failure.event)
    };
    assert!(!fails(limit) && fails(4 * GIB));
}

#[test]
fn what_a_replay_under_a_capacity_holds_is_told_beside_the_recording() {
    let device = explained(&read("moe__default"), Some(5 * GIB));
    assert!(device.failure.is_none(), "{:?}", device.failure);
    let (recorded, replayed) = (device.peak_reserved, device.peak_under_capacity);
    assert!(recorded > Some(9 * GIB), "{recorded:?}");
    assert!(replayed.is_some_and(|bytes| bytes <= 5 * GIB), "{replayed:?}");
}

#[test]
fn a_limit_that_lets_only_this_request_pass_is_said_to_do_no_more() {
    let capacity = GIB / 10 * 48;
    let failure = failure("moe__default", Some(capacity));
    let advice = failure.advice.iter().find(|a| a.action.contains("use a card")).expect("a card");
    let trial = advice.trial.as_ref().expect("a proof");
    assert!(trial.later_failures > 0);
    assert!(advice.action.contains("for this request alone"), "{}", advice.action);
    assert!(advice.action.contains("the whole program needs"), "{}", advice.action);
}

#[test]
fn an_absurd_request_is_called_so() {
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "alloc", "addr": 4096, "size": 512, "stream": 0},
        {"action": "oom", "device_free": 1000000000, "size": 1000000000000000, "stream": 0}]]}"#;
    let snapshot = read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot");
    let failure = explained(&snapshot, None).failure.expect("it failed");
    assert_eq!(failure.cause, Cause::AbsurdRequest);
    assert!(failure.confidence > 0.9, "{:?}", failure.why);
    assert!(failure.advice[0].action.contains("shapes"), "{:?}", failure.advice);
}

#[test]
fn a_history_that_no_replay_reproduces_proves_nothing() {
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "segment_alloc", "addr": 4096, "size": 20971520, "stream": 0},
        {"action": "alloc", "addr": 4096, "size": 3000000, "stream": 0},
        {"action": "alloc", "addr": 8192, "size": 3000000, "stream": 0},
        {"action": "oom", "device_free": 99999999999, "size": 5000000, "stream": 0}]]}"#;
    let snapshot = read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot");
    let device = explained(&snapshot, None);
    assert!(matches!(device.proof, Proof::None(_)));
    let failure = device.failure.expect("there is an oom entry");
    assert!(failure.confidence <= 0.5 && failure.advice.iter().all(|a| a.trial.is_none()));
}

#[test]
fn a_recorded_failure_that_replays_do_not_reproduce_is_told_with_the_recorded_figures() {
    let device = explained(&read("ring_fuzz__expandable"), None);
    let Proof::None(why) = &device.proof else { panic!("replays start from an empty cache") };
    assert!(why.contains("told from the history alone"), "{why}");
    let failure = device.failure.expect("it ran out of memory");
    assert_eq!((failure.event, failure.account.reserved), (104, 4_898_947_072));
    assert!(!failure.proved && failure.advice.iter().all(|a| a.trial.is_none()));
    assert!(failure.limit.low <= failure.limit.high);
}

#[test]
fn what_is_not_reproduced_is_not_called_proved_beside_it() {
    let device = explained(&read("late_fuzz__default"), None);
    assert!(matches!(device.proof, Proof::None(_)));
    let failure = device.failure.expect("it ran out of memory");
    assert!(!failure.proved && failure.account.allocated > 0);
}

#[test]
fn blocks_from_before_the_recording_keep_their_stacks() {
    let device = explained(&read("public/lm-train-midrun"), Some(8 * GIB + GIB / 2));
    let failure = device.failure.expect("it runs out of memory");
    let named = |place: &str| failure.holders.iter().any(|h| h.place.starts_with(place));
    assert!(named("app/cs336_basics/model.py:532"), "{:?}", failure.holders);
    assert!(!failure.why.iter().any(|w| w.contains("no stack recorded")), "{:?}", failure.why);
}

#[test]
fn an_entry_of_an_unknown_kind_is_not_reproduced() {
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "segment_teleport", "addr": 4096, "size": 20971520, "stream": 0}]]}"#;
    let snapshot = read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot");
    assert!(matches!(explained(&snapshot, None).proof, Proof::None(_)));
}

/// Each allocation is freed at most once, and only after it was made.
fn is_sound(program: &Program) -> bool {
    let mut live = vec![false; program.slots as usize];
    program.ops.len() == program.events.len()
        && program.ops.iter().all(|op| match *op {
            Op::Malloc { slot, pool, .. } => {
                pool < program.pools && !std::mem::replace(&mut live[slot as usize], true)
            }
            Op::Failed { pool, .. } => pool < program.pools,
            Op::Free { slot } | Op::Complete { slot } => {
                std::mem::replace(&mut live[slot as usize], false)
            }
            Op::FreePending { slot } => live[slot as usize],
            Op::Release { .. } => true,
        })
}

#[test]
fn changed_programs_are_programs() {
    for name in ["streams__default", "pools2__default", "fuzz00__default", "cudagraph__default"] {
        let program = recording(&read(name)).program;
        assert!(is_sound(&program), "{name}");
        assert!(is_sound(&change::merged(&program)) && is_sound(&change::completed(&program)));
        for part in [3, 2] {
            let op = program.ops.len() / part;
            let held = change::held(&program, op);
            let slots = held.iter().map(|(slot, _)| *slot).collect();
            let released = change::released(&program, &slots, op);
            assert!(is_sound(&released), "{name}");
            assert!(change::held(&released, op + slots.len()).is_empty(), "{name}");
            let requests = held.iter().map(|(_, op)| *op).collect();
            assert!(is_sound(&change::apart(&program, &requests)), "{name}");
        }
    }
}

#[test]
fn in_a_what_if_every_block_has_the_line_that_allocated_it() {
    // Under a smaller capacity the cache is flushed at other moments, and blocks come to lie elsewhere
    // than in the recording: their lines follow from the requests, not from recorded addresses.
    let snapshot = read("public/lm-train-200");
    let recording = recording(&snapshot);
    let events = &snapshot.devices[0].events;
    let peak = recording.stats.all(vramwise_model::stats::Family::ReservedBytes).peak as u64;
    for percent in [80, 93, 94] {
        let capacity = peak / 100 * percent;
        let failure = explained(&snapshot, Some(capacity)).failure.expect("it does not fit");
        let (config, _) = recorded_config(snapshot.settings.as_ref(), version(&snapshot));
        let conditions =
            Conditions { limit: Some(capacity), ..Conditions::new(config, version(&snapshot)) };
        let op = moment::first(&recording, &conditions).expect("it does not fit").op;
        let mut namer = crate::peak::holders::Namer::new(&snapshot, crate::peak::By::Stack, 1);
        let mut expected = std::collections::BTreeMap::new();
        for (_, at) in change::held(&recording.program, op) {
            let event = crate::peak::replayed::event_of(&recording, events, at);
            *expected.entry(namer.stack(events.stack_of(event))).or_insert(0) += 1;
        }
        let told = failure.holders.iter().map(|h| (h.place.clone(), h.blocks)).collect();
        assert_eq!(expected, told, "{percent} %");
        for block in failure.pinned.iter().flat_map(|segment| &segment.blocks) {
            assert!(block.pending || expected.contains_key(&block.place), "{}", block.place);
        }
    }
}

/// A file that no replay reproduces (its blocks are longer than their segments were), with a request that
/// failed, and so many frees behind it.
fn irreproducible(later: usize) -> Snapshot {
    let event = |action: &str, addr: u64, size: u64| {
        format!(r#"{{"action": "{action}", "addr": {addr}, "size": {size}, "stream": 0}}"#)
    };
    let base = 1u64 << 30;
    let mut events = vec![
        event("segment_alloc", base, 30 * MIB),
        event("alloc", base, 20 * MIB),
        event("oom", MIB, 40 * MIB),
    ];
    events.extend((0..later).map(|i| event("free_completed", base + 512 * (i as u64 + 1), 512)));
    let block = |addr: u64, size: u64, state: &str| {
        format!(
            r#"{{"address": {addr}, "size": {size}, "requested_size": {size}, "state": "{state}"}}"#
        )
    };
    let text = format!(
        r#"{{"segments": [{{"address": {base}, "total_size": {}, "allocated_size": {}, "active_size": {},
            "stream": 0, "segment_type": "large", "blocks": [{}, {}]}}],
            "device_traces": [[{}]]}}"#,
        30 * MIB,
        20 * MIB,
        20 * MIB,
        block(base, 20 * MIB, "active_allocated"),
        block(base + 20 * MIB, 10 * MIB, "inactive"),
        events.join(", ")
    );
    read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot")
}

#[test]
fn a_snapshot_of_the_moment_shows_the_pools_even_without_a_replay() {
    let device = explained(&irreproducible(0), None);
    assert!(matches!(device.proof, Proof::None(_)), "{:?}", device.proof);
    let failure = device.failure.expect("it failed");
    let a = &failure.account;
    assert_eq!((a.allocated, a.free_own, a.largest_own), (20 * MIB, 10 * MIB, 10 * MIB));
    assert!(failure.why.iter().any(|w| w.contains("free inside the segments: 10.00 MiB")));
    assert_eq!(failure.pinned.len(), 1);
    let later = explained(&irreproducible(3), None).failure.expect("it failed");
    assert_eq!((later.account.free_own, later.pinned.len()), (0, 0));
    let told = later.why.join("\n");
    assert!(told.contains("is not known; at the end of the recording, 3 entries later"), "{told}");
}

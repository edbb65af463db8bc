//! Recordings of real programs.

use std::fs::File;

use serde_json::Value;
use vramwise_trace::{
    BlockState, DeviceTrace, Producer, ReadOptions, Replayable, SegmentKind, Snapshot, StackId,
    describe, read_path,
};
use vramwise_types::{Action, TorchVersion};

use crate::made::{codes, testdata};

const OWN: [&str; 9] = [
    "cudagraph__default",
    "fuzz00__default",
    "fuzz03__expandable",
    "lstm_varlen__default",
    "lstm_varlen__expandable",
    "moe__default",
    "oom_fragmented__default",
    "oom_fragmented__default__stacks",
    "streams__default",
];

const PUBLIC: [&str; 5] = [
    "lm-forward-expandable",
    "lm-train-200",
    "lm-train-200-amp",
    "lm-train-midrun",
    "synthetic-mosaic",
];

fn read(name: &str) -> Snapshot {
    let path = testdata("snapshots").join(format!("{name}.snapshot.pickle.gz"));
    read_path(path, &ReadOptions::default()).unwrap()
}

fn stats(name: &str) -> Value {
    let path = testdata("snapshots").join(format!("{name}.stats.json.gz"));
    let file = flate2::read::GzDecoder::new(File::open(path).unwrap());
    serde_json::from_reader(file).unwrap()
}

#[test]
fn segments_and_histories_agree_with_the_counters_of_the_same_run() {
    for name in OWN {
        let snapshot = read(name);
        let stats = stats(name);
        let counter = |key: &str| stats["final"][key].as_u64().unwrap();
        let [device] = snapshot.devices.as_slice() else { panic!("{name}: one device") };
        assert_eq!(device.events.len() as u64, stats["events"].as_u64().unwrap(), "{name}");
        let total =
            |of: fn(&vramwise_trace::Segment) -> u64| device.segments.iter().map(of).sum::<u64>();
        assert_eq!(total(|s| s.total_size), counter("reserved_bytes.all.current"), "{name}");
        assert_eq!(total(|s| s.allocated_size), counter("allocated_bytes.all.current"), "{name}");
        assert_eq!(total(|s| s.active_size), counter("active_bytes.all.current"), "{name}");
        assert_eq!(total(|s| s.requested_size), counter("requested_bytes.all.current"), "{name}");
        let live = blocks(device, BlockState::ActiveAllocated);
        assert_eq!(live, counter("allocated_bytes.all.current"), "{name}");
        let count = |action| device.events.action.iter().filter(|a| **a == action).count() as u64;
        assert_eq!(count(Action::Oom), counter("num_ooms"), "{name}");
        let growth = count(Action::SegmentAlloc) + count(Action::SegmentMap);
        let expandable = name.contains("expandable");
        assert_eq!(growth > 0 && expandable, count(Action::SegmentMap) > 0, "{name}");
        let allocated: u64 = sizes(device, Action::Alloc);
        assert_eq!(allocated, counter("requested_bytes.all.allocated"), "{name}");
    }
}

fn blocks(device: &DeviceTrace, state: BlockState) -> u64 {
    device.blocks.iter().filter(|b| b.state == state).map(|b| b.size).sum()
}

fn sizes(device: &DeviceTrace, action: Action) -> u64 {
    let events = device.events.action.iter().zip(&device.events.size);
    events.filter(|(a, _)| **a == action).map(|(_, size)| *size).sum()
}

#[test]
fn recordings_from_an_empty_cache_can_be_replayed() {
    for name in OWN {
        let snapshot = read(name);
        let description = describe(&snapshot);
        assert_eq!(description.devices[0].replayable, Replayable::Yes, "{name}");
        assert_eq!(description.version, Some(TorchVersion::new(2, 11)), "{name}");
        assert_eq!(description.producer, Producer::PyTorch, "{name}");
        assert!(snapshot.unknown_keys.is_empty(), "{name}");
        let expected: &[&str] = if name.ends_with("stacks") { &[] } else { &["no-stacks"] };
        assert_eq!(codes(&snapshot), expected, "{name}");
        assert!(snapshot.settings.is_some(), "{name}");
        let conf = stats(name)["conf"].as_str().unwrap().to_owned();
        assert_eq!(description.settings, Some(conf), "{name}");
    }
}

#[test]
fn every_part_of_a_recording_with_stacks_is_there() {
    let snapshot = read("oom_fragmented__default__stacks");
    let device = &snapshot.devices[0];
    assert_eq!(device.events.stack.len(), device.events.len());
    let stack = device.events.stack_of(0);
    assert_ne!(stack, StackId::NONE);
    for frame in snapshot.stacks.stack(stack) {
        let frame = snapshot.stacks.frame(*frame);
        assert!(!snapshot.strings.get(frame.name).is_empty());
        assert!(snapshot.strings.get(frame.filename).ends_with(".py"));
        assert!(frame.line > 0);
    }
    assert!(snapshot.stacks.len() < device.events.len() / 10, "equal stacks are one stack");
    let oom = device.events.action.iter().position(|a| *a == Action::Oom).unwrap();
    let free = stats("oom_fragmented__default__stacks")["total_bytes"].as_u64().unwrap();
    assert!((1..free).contains(&device.events.addr[oom]), "the driver's free bytes");
    assert!(device.events.time_us.is_sorted());
}

#[test]
fn pools_streams_and_pending_frees_are_read() {
    let graphs = read("cudagraph__default");
    let device = &graphs.devices[0];
    let private = device.segments.iter().filter(|s| s.pool_id != (0, 0)).count();
    assert!(private > 0 && private < device.segments.len());
    assert_eq!(device.events.streams[0], 0);
    assert_eq!(device.events.streams.len(), 3);
    let expandable = read("fuzz03__expandable");
    assert!(expandable.devices[0].segments.iter().all(|s| s.is_expandable));
    assert!(expandable.settings.unwrap().expandable_segments);
    let moe = read("moe__default");
    assert_eq!(moe.annotations.len(), 32);
    assert_eq!(moe.annotations.iter().filter(|a| a.is_start).count(), 16);
    assert!(moe.devices[0].segments.iter().any(|s| s.kind == SegmentKind::Small));
}

#[test]
fn published_recordings_are_told_for_what_they_are() {
    for name in PUBLIC {
        let snapshot = read(&format!("public/{name}"));
        let description = describe(&snapshot);
        let device = &description.devices[0];
        let codes: Vec<_> = description.warnings.iter().map(|w| w.code).collect();
        match name {
            "lm-train-200" | "lm-train-200-amp" => {
                assert_eq!(device.replayable, Replayable::Yes, "{name}");
                assert_eq!(description.version, Some(TorchVersion::new(2, 5)), "{name}");
                assert!(codes.is_empty(), "{name}: {codes:?}");
            }
            "lm-train-midrun" => {
                assert_eq!(device.facts.unpaired_frees, 438);
                assert_eq!(codes, ["started-mid-run", "unpaired-frees"]);
                assert!(matches!(device.replayable, Replayable::Partly(_)));
            }
            "lm-forward-expandable" => {
                assert_eq!(codes, ["started-mid-run"]);
                assert!(matches!(device.replayable, Replayable::Partly(_)));
            }
            _ => {
                assert!(matches!(description.producer, Producer::Other(_)));
                assert!(codes.contains(&"other-producer") && codes.contains(&"missing-actions"));
            }
        }
    }
}

//! Writing snapshots.

use std::process::Command;

use vramwise_trace::{ReadOptions, Snapshot, read_path, read_slice, write_json, write_pickle};

use crate::made::{BASE, dict, event, frame, list, read, shown, snapshot, testdata, text, with};
use crate::py::Py;

fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_pickle(snapshot, &mut bytes).unwrap();
    bytes
}

fn recordings() -> impl Iterator<Item = Snapshot> {
    let names = [
        "moe__default",
        "fuzz03__expandable",
        "oom_fragmented__default__stacks",
        "public/lm-train-midrun",
        "public/synthetic-mosaic",
    ];
    names.into_iter().map(|name| {
        let path = testdata("snapshots").join(format!("{name}.snapshot.pickle.gz"));
        read_path(path, &ReadOptions::default()).unwrap()
    })
}

/// A snapshot with everything that the tables can hold.
fn rich() -> Py {
    let frames = || list([frame("f", 1), frame("g", 2)]);
    let events = list([
        with(event("segment_alloc", BASE, 2 << 20), "frames", frames()),
        with(with(event("alloc", BASE, 500), "frames", frames()), "stream", Py::Int(-7)),
        with(event("alloc", BASE + 512, 9), "compile_context", text("0/1")),
        with(event("alloc", BASE + 1024, 9), "user_metadata", text("{\"a\": 1}")),
        with(
            event("free_requested", BASE, 500),
            "pool_id",
            Py::Tuple(vec![Py::Int(0), Py::Int(3)]),
        ),
        with(with(event("oom", 0, 1 << 40), "addr", None), "device_free", Py::Int(12345)),
    ]);
    let annotation = dict([
        ("stage", text("START")),
        ("name", text("Ünïcode \"quoted\"\n")),
        ("device", Py::Int(0)),
        ("time_us", Py::Int(5)),
    ]);
    let data = with(snapshot(), "device_traces", list([list([]), events]));
    let steps = list([Py::Int(0), Py::Int(20)]);
    let change = |time, conf| dict([("time_us", Py::Int(time)), ("conf", text(conf))]);
    let changes = list([change(3, "expandable_segments:True"), change(9, "")]);
    let settings = dict([("before", text("max_split_size_mb:64")), ("changes", changes)]);
    let note = dict([("steps_with_stacks", steps), ("settings", settings)]);
    let data = with(data, "vramwise_recorder", note);
    with(data, "external_annotations", list([annotation]))
}

#[test]
fn a_written_snapshot_reads_back_as_the_same_tables() {
    for snapshot in recordings().chain([read(&rich())]) {
        let again = read_slice(&pickled(&snapshot), &ReadOptions::default()).unwrap();
        assert_eq!(shown(&again), shown(&snapshot));
        assert_eq!(again.settings, snapshot.settings);
        let mut json = Vec::new();
        write_json(&snapshot, &mut json).unwrap();
        let again = read_slice(&json, &ReadOptions::default()).unwrap();
        assert_eq!(shown(&again), shown(&snapshot));
        assert_eq!(again.settings, snapshot.settings);
        assert_eq!(again.recorder, snapshot.recorder);
        assert_eq!(again.annotations.len(), snapshot.annotations.len());
    }
}

#[test]
fn writing_is_deterministic_and_shares_what_is_equal() {
    for snapshot in recordings() {
        let bytes = pickled(&snapshot);
        assert_eq!(bytes, pickled(&snapshot));
        let events: usize = snapshot.devices.iter().map(|d| d.events.len()).sum();
        let blocks: usize = snapshot.devices.iter().map(|d| d.blocks.len()).sum();
        let stacks = 250 * snapshot.stacks.len();
        assert!(bytes.len() < 80 * events + 90 * blocks + stacks + 30_000, "{}", bytes.len());
    }
}

/// What Python itself makes of a pickle, as JSON with sorted keys; `None` where there is no Python.
fn through_python(bytes: &[u8], name: &str) -> Option<String> {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    let script = "import json, pickle, sys; data = pickle.load(open(sys.argv[1], 'rb')); \
                  assert isinstance(data['segments'][0]['segment_pool_id'], tuple); \
                  print(json.dumps(data, sort_keys=True))";
    let output = Command::new("python3").arg("-c").arg(script).arg(&path).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn python_reads_what_was_written() {
    let small = recordings().filter(|s| s.devices[0].events.len() < 10_000);
    for (i, snapshot) in small.chain([read(&rich())]).enumerate() {
        let Some(python) = through_python(&pickled(&snapshot), &format!("written{i}.pickle"))
        else {
            println!("SKIPPED: there is no python3 to read the pickle with");
            return;
        };
        let python: serde_json::Value = serde_json::from_str(&python).unwrap();
        let ours: serde_json::Value = serde_json::from_str(&shown(&snapshot)).unwrap();
        assert_eq!(python, ours);
    }
}

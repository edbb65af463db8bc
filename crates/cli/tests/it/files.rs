//! `vramwise redact`, `slice`, `convert` and `ranks`: files in, files out.

use std::process::Output;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const STACKS: &str = "testdata/snapshots/oom_fragmented__default__stacks.snapshot.pickle.gz";
const LSTM: &str = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";

/// A room in which the recording is called `a.pickle`.
fn room_with(name: &str, recording: &str) -> Room {
    let room = Room::new(name);
    let content = std::fs::read(repository().join(recording)).unwrap();
    room.write("a.pickle", content);
    room
}

fn done(room: &Room, args: &[&str]) -> Output {
    let output = room.vramwise(args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {told}");
    output
}

#[test]
fn the_file_tools_explain_themselves() {
    assert_cmd_snapshot!(vramwise(&["redact", "--help"]));
    assert_cmd_snapshot!(vramwise(&["slice", "--help"]));
    assert_cmd_snapshot!(vramwise(&["convert", "--help"]));
    assert_cmd_snapshot!(vramwise(&["ranks", "--help"]));
}

#[test]
fn a_redacted_file_replays_like_the_original() {
    let room = room_with("redact", STACKS);
    assert_cmd_snapshot!(room.vramwise(&["redact", "a.pickle", "--functions", "-o", "b.pickle"]));
    done(&room, &["redact", "b.pickle", "--functions", "-o", "c.pickle"]);
    assert_eq!(room.read("b.pickle"), room.read("c.pickle"));
    let text = String::from_utf8_lossy(&room.read("b.pickle")).into_owned();
    assert!(!text.contains("train.py") && !text.contains("w_oom"), "the names are gone");
    let replay = |file| {
        let mut report: serde_json::Value = serde_json::from_slice(
            &room.vramwise(&["replay", file, "--json"]).output().unwrap().stdout,
        )
        .unwrap();
        report["file"] = serde_json::Value::Null;
        report
    };
    assert_eq!(replay("a.pickle"), replay("b.pickle"));
}

#[test]
fn redacted_annotations_cost_neither_steps_nor_categories() {
    let room = room_with(
        "redact-annotations",
        "testdata/snapshots/leak__default__stacks.snapshot.pickle.gz",
    );
    done(&room, &["redact", "a.pickle", "--annotations", "--functions", "-o", "b.pickle"]);
    let told = |args: &[&str], key: &str| {
        let output = room.vramwise(args).arg("--json").output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report.pointer(key).unwrap().clone()
    };
    let categories = |file| told(&["inspect", file], "/devices/0/memory/categories");
    assert_eq!(categories("a.pickle"), categories("b.pickle"));
    let steps = |file| told(&["leaks", file], "/files/0/devices/0/steps_by");
    assert_eq!(
        (steps("a.pickle"), steps("b.pickle")),
        ("Optimizer.step#AdamW.step".into(), "Optimizer.step#AdamW.step".into())
    );
}

#[test]
fn a_slice_says_what_it_holds_and_replays() {
    let room = room_with("slice", LSTM);
    assert_cmd_snapshot!(
        room.vramwise(&["slice", "a.pickle", "--from", "500", "--to", "1_001", "-o", "b.pickle"])
    );
    done(&room, &["validate", "b.pickle"]);
    let replay = room.vramwise(&["replay", "b.pickle", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!(report["verify"]["first_divergence"], serde_json::Value::Null);
    assert_eq!(report["verify"]["final_state_exact"], true);
}

#[test]
fn a_slice_that_does_not_replay_on_its_own_says_so() {
    let room =
        room_with("slice-pools", "testdata/snapshots/ring_fuzz__expandable.snapshot.pickle.gz");
    assert_cmd_snapshot!(
        room.vramwise(&["slice", "a.pickle", "--from", "700", "--to", "1300", "-o", "b.pickle"])
    );
}

#[test]
fn every_format_is_written() {
    let room = room_with("convert", STACKS);
    for format in ["pickle4", "json", "perfetto", "folded", "parquet", "csv"] {
        done(&room, &["convert", "a.pickle", "--to", format, "-o", format]);
    }
    assert!(room.read("pickle4").starts_with(&[0x80, 4]));
    assert!(room.read("parquet").starts_with(b"PAR1") && room.read("parquet").ends_with(b"PAR1"));
    assert_cmd_snapshot!(room.vramwise(&["convert", "a.pickle", "--to", "folded"]));
    // The pickle and the JSON file say the same, to the byte.
    done(&room, &["convert", "json", "--to", "pickle4", "-o", "again"]);
    assert_eq!(room.read("again"), room.read("pickle4"));
    let csv = String::from_utf8(room.read("csv")).unwrap();
    assert!(csv.starts_with("device,event,action,address,size_bytes,"), "{csv}");
    let names = room.names();
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn nothing_is_written_over_and_binary_files_need_a_name() {
    let room = room_with("overwrite", STACKS);
    room.write("there", "theirs");
    for (args, complaint) in [
        (["convert", "a.pickle", "--to", "csv", "-o", "there"].as_slice(), "exists already"),
        (&["convert", "a.pickle", "--to", "csv", "-f", "-o", "a.pickle"], "is an input"),
        (&["convert", "a.pickle", "--to", "parquet"], "name the file to write with -o"),
        (&["convert", "a.pickle", "--to", "csv", "--json"], "name the file to write with -o"),
        (
            &["convert", "a.pickle", "--to", "perfetto", "--table", "blocks", "-o", "b"],
            "--table is for parquet and csv",
        ),
        (&["redact", "a.pickle"], "name the file to write with -o"),
        (&["redact", "a.pickle", "-o", "-", "--json"], "would both print"),
        (&["slice", "a.pickle", "--from", "9", "--to", "3", "-o", "b"], "no part of the history"),
        (&["slice", "a.pickle", "--to", "999999", "-o", "b"], "which has 489 events"),
        (
            &["slice", "a.pickle", "--from", "9", "--to", "9", "-o", "b"],
            "to keep event 9, write --to 10",
        ),
        (&["slice", "a.pickle", "--from", "489", "-o", "b"], "the last event is 488"),
        (&["slice", "a.pickle", "--to", "0", "-o", "b"], "the slice would be empty"),
        (
            &["convert", "a.pickle", "--to", "csv", "--device", "4", "-o", "b"],
            "there is no device 4",
        ),
        (&["ranks", "nowhere"], "nowhere"),
    ] {
        let output = room.vramwise(args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(output.stdout.is_empty() && told.contains(complaint), "{args:?}: {told}");
    }
    assert_eq!(room.read("there"), b"theirs");
}

#[test]
fn hostile_files_are_refused_by_every_tool() {
    let attacks = repository().join("testdata/attacks");
    for entry in std::fs::read_dir(attacks).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_str().unwrap();
        if !name.contains("/wrong-") && !name.contains("/code-") && !name.contains("/fine-") {
            continue;
        }
        for args in [
            ["redact", name, "-o", "-"].as_slice(),
            &["slice", name, "--to", "1", "-o", "-"],
            &["convert", name, "--to", "perfetto"],
            &["convert", name, "--to", "folded"],
            &["convert", name, "--to", "parquet", "-o", "-"],
            &["diff", name, name],
            &["check", name, "--max-peak-reserved", "1"],
            &["ranks", name],
        ] {
            let output = vramwise(args).env_remove("GITHUB_STEP_SUMMARY").output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|c| c <= 2), "{args:?}: {told}");
            assert!(!told.contains("panicked"), "{args:?}: {told}");
        }
    }
}

#[test]
fn ranks_of_a_folder_are_compared_and_the_odd_one_is_named() {
    let room = Room::new("ranks");
    let lstm = std::fs::read(repository().join(LSTM)).unwrap();
    let other = std::fs::read(repository().join(STACKS)).unwrap();
    let folder = room.write("x", "").with_file_name("iteration_20");
    std::fs::create_dir(&folder).unwrap();
    for rank in [0, 1, 2, 10] {
        std::fs::write(folder.join(format!("rank{rank}_memory_snapshot.pickle")), &lstm).unwrap();
    }
    std::fs::write(folder.join("snapshot_oom_rank-3.pickle"), &other).unwrap();
    assert_cmd_snapshot!(room.vramwise(&["ranks", "iteration_20"]));
    std::fs::write(folder.join("rank4.pickle"), b"\x80\x04cos\nsystem\n.").unwrap();
    let output = room.vramwise(&["ranks", "iteration_20", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["unreadable"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["ranks"].as_array().map(Vec::len), Some(5));
    let order: Vec<_> =
        report["ranks"].as_array().unwrap().iter().map(|r| r["rank"].as_u64().unwrap()).collect();
    assert_eq!(order, [0, 1, 2, 3, 10]);
    std::fs::create_dir(folder.with_file_name("empty")).unwrap();
    assert_cmd_snapshot!(room.vramwise(&["ranks", "empty"]));
}

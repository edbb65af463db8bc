//! `vramwise inspect`: peaks and their holders, and what it refuses.

use std::process::Command;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const MOE: &str = "testdata/snapshots/moe__default.snapshot.pickle.gz";
const OOM: &str = "testdata/snapshots/oom_fragmented__default__stacks.snapshot.pickle.gz";
const MIDRUN: &str = "testdata/snapshots/public/lm-train-midrun.snapshot.pickle.gz";

/// `vramwise inspect ARGS`, run in the root of the repository.
fn inspect(args: &[&str]) -> Command {
    let mut command = vramwise(&["inspect"]);
    command.args(args).current_dir(repository());
    command
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = inspect(args).arg("--json").output().expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document on standard output")
}

#[test]
fn inspect_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["inspect", "--help"]));
}

#[test]
fn the_peak_and_the_lines_that_held_it_are_told() {
    assert_cmd_snapshot!(inspect(&[OOM]));
}

#[test]
fn a_recording_without_stacks_is_told_by_size() {
    assert_cmd_snapshot!(inspect(&[MOE, "--by", "size", "--top", "5"]));
}

#[test]
fn a_recording_from_mid_run_says_what_is_not_known() {
    assert_cmd_snapshot!(inspect(&[MIDRUN, "--top", "6"]));
}

#[test]
fn the_json_has_exact_bytes_and_the_moment() {
    let report = json(&[OOM, "--at", "454", "--by", "stream"]);
    assert_eq!(report["schema"], 1);
    let device = &report["devices"][0];
    assert_eq!(device["evidence"], "replay");
    assert_eq!(device["peaks"]["allocated"]["bytes"], 5_464_129_536_u64);
    assert_eq!(device["peaks"]["allocated"]["exact"], true);
    assert_eq!(device["oom"][0]["event"], 454);
    let memory = &device["memory"];
    assert_eq!((&memory["at"], &memory["event"]), (&"event".into(), &454.into()));
    assert_eq!(memory["groups"][0]["name"], "default stream");
    assert_eq!(memory["groups"][0]["bytes"], memory["allocated_bytes"]);
    assert_eq!(device["timeline"].as_array().map(Vec::len), Some(60));
}

#[test]
fn what_cannot_be_shown_is_wrong_usage() {
    for (args, complaint) in [
        ([OOM, "--at", "489"], "the history has 489 (0 to 488)"),
        ([OOM, "--device", "3"], "there is no device 3"),
        ([OOM, "--at", "noon"], "write peak, end or the number of an event"),
        (["testdata/attacks/code-inside-a-snapshot.pickle", "--at", "end"], "error: "),
    ] {
        let output = inspect(&args).output().expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(output.stdout.is_empty() && told.contains(complaint), "{args:?}: {told}");
    }
    let room = Room::new("inspect-nothing");
    room.write("state.json", r#"{"segments": [], "device_traces": [[], []]}"#);
    assert_cmd_snapshot!(room.vramwise(&["inspect", "state.json"]));
}

#[test]
fn categories_are_told_with_the_rules_that_decided() {
    let leak = "testdata/snapshots/leak__default__stacks.snapshot.pickle.gz";
    assert_cmd_snapshot!(inspect(&[leak, "--by", "category", "-v"]));
}

#[test]
fn a_log_is_no_snapshot_and_the_command_for_it_is_named() {
    let room = Room::new("inspect-log");
    room.write("a.log", "Processing 3 files\nCUDA out of memory\n");
    let output = room.vramwise(&["inspect", "a.log"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && told.contains("hint: vramwise explain reads logs"),
        "{told}"
    );
}

#[test]
fn figures_that_contradict_each_other_are_told_as_such() {
    let json = json(&["testdata/snapshots/public/synthetic-mosaic.snapshot.pickle.gz"]);
    let peaks = &json["devices"][0]["peaks"];
    assert!(peaks["impossible"].as_str().unwrap().contains("never more than 250.00 MiB reserved"));
    assert_eq!(peaks["reserved"]["exact"], false);
    let room = Room::new("inspect-impossible");
    room.write(
        "a.json",
        r#"{"segments": [{"address": 1073741824, "total_size": 20971520, "allocated_size": 512, "active_size": 512,
            "stream": 0, "segment_type": "large", "blocks": [{"address": 1073741824, "size": 512, "state": "active_allocated"}]}],
            "device_traces": [[{"action": "alloc", "addr": 1073741824, "size": 9223372036854775808, "stream": 0}]]}"#,
    );
    let output = room.vramwise(&["inspect", "a.json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("which is impossible"), "{told}");
}

#[test]
fn a_part_of_the_history_has_its_own_peaks() {
    let whole = json(&[MOE]);
    let part = json(&[MOE, "--from", "1000", "--to", "9_000"]);
    let peak = |json: &serde_json::Value, key: &str| {
        let peak = &json["devices"][0]["peaks"]["allocated"];
        peak[key].as_u64().unwrap()
    };
    assert!(peak(&part, "bytes") < peak(&whole, "bytes"));
    assert!((1000..=9000).contains(&peak(&part, "event")));
    assert_eq!(
        inspect(&[MOE, "--from", "9", "--to", "8"]).output().unwrap().status.code(),
        Some(2)
    );
    assert_eq!(inspect(&[MOE, "--to", "999999999"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn rules_of_the_user_are_read_from_a_file() {
    let room = Room::new("inspect-rules");
    let rules = "[[rule]]\ncategory = \"held\"\nframe = \"train.py:203\"\nmin_size = \"1GiB\"\n";
    let path = room.write("rules.toml", rules);
    let json = json(&[OOM, "--rules", path.to_str().unwrap()]);
    let categories = json["devices"][0]["memory"]["categories"].as_array().unwrap().clone();
    let held = categories.iter().find(|c| c["category"] == "held").unwrap();
    assert_eq!(held["blocks"], 3);
    let wrong = room.write("wrong.toml", "[[rule]]\ncategory = 3\n");
    let refused = inspect(&[OOM, "--rules", wrong.to_str().unwrap()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_folder_of_recordings_is_refused_with_the_names_of_its_files() {
    let room = Room::new("inspect-folder");
    let recording = std::fs::read(repository().join(MOE)).expect("a recording");
    room.write("end_rank0_step5.pickle", &recording);
    room.write("oom_rank0_step5.pickle", &recording);
    room.write("oom_rank0_step5.info", b"{}");
    let output = room.vramwise(&["inspect", "."]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("./end_rank0_step5.pickle, ./oom_rank0_step5.pickle"), "{said}");
    assert!(said.contains("explain") && !said.contains(".info"), "{said}");
}

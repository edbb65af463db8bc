//! `vramwise replay`: verification, what-if, and what it refuses.

use std::process::Command;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const MOE: &str = "testdata/snapshots/moe__default.snapshot.pickle.gz";
const OOM: &str = "testdata/snapshots/oom_fragmented__default.snapshot.pickle.gz";

/// `vramwise replay ARGS`, run in the root of the repository.
fn replay(args: &[&str]) -> Command {
    let mut command = vramwise(&["replay"]);
    command.args(args).current_dir(repository());
    command
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = replay(args).arg("--json").output().expect("the program runs");
    serde_json::from_slice(&output.stdout).expect("one JSON document on standard output")
}

#[test]
fn a_recording_is_reproduced_to_the_byte() {
    assert_cmd_snapshot!(replay(&[MOE]));
}

#[test]
fn other_settings_are_answered_by_a_replay() {
    assert_cmd_snapshot!(replay(&[MOE, "--conf", "max_split_size_mb:128"]));
}

#[test]
fn a_program_that_does_not_fit_is_a_finding() {
    assert_cmd_snapshot!(replay(&[MOE, "--capacity", "4GiB"]));
}

#[test]
fn failed_requests_are_reproduced_without_being_told_the_limit() {
    let report = json(&[OOM]);
    assert_eq!(report["verify"]["ooms"], report["verify"]["ooms_exact"]);
    assert_eq!(report["verify"]["final_state_exact"], true);
    assert_eq!(report["oom"].as_array().map(Vec::len), Some(1));
    let assumptions = report["assumptions"].as_array().expect("a list");
    assert!(assumptions.iter().any(|a| a.as_str().unwrap_or("").contains("--capacity")));
}

#[test]
fn a_file_of_another_producer_is_told_as_impossible() {
    let file = "testdata/snapshots/public/synthetic-mosaic.snapshot.pickle.gz";
    assert_cmd_snapshot!(replay(&[file]));
}

#[test]
fn every_counter_of_memory_stats_is_in_the_json() {
    let report = json(&[MOE, "--conf", "expandable_segments:True"]);
    assert_eq!(report["schema"], 1);
    assert!(report["verify"].is_null());
    assert_eq!(report["stats"].as_object().map(serde_json::Map::len), Some(122));
    assert_eq!(report["settings"]["replayed"], "expandable_segments:True");
    assert_eq!(report["device_calls"]["malloc"], 0);
}

#[test]
fn settings_that_pytorch_refuses_are_refused_with_the_right_ones() {
    assert_cmd_snapshot!(replay(&[MOE, "--conf", "max_split_size_mb=128"]));
}

#[test]
fn settings_may_change_in_mid_run() {
    let report = json(&[MOE, "--conf", "", "--conf-at", "20000=expandable_segments:True"]);
    let calls = &report["device_calls"];
    assert!(calls["malloc"].as_i64() > Some(0) && calls["map"].as_i64() > Some(0), "{calls}");
    assert_cmd_snapshot!(replay(&[MOE, "--conf-at", "999999=expandable_segments:True"]));
}

#[test]
fn the_state_at_the_end_can_be_written_and_replayed_again() {
    let room = Room::new("emit");
    let moe = repository().join(MOE);
    let moe = moe.to_str().expect("a path of letters");
    let emit = |room: &Room, args: &[&str]| {
        let mut all = vec!["replay", moe, "--conf", "expandable_segments:True"];
        all.extend(["--emit", "after.pickle", "-q"]);
        all.extend(args);
        room.vramwise(&all).output().expect("the program runs").status.code()
    };
    assert_eq!(emit(&room, &[]), Some(0));
    let first = room.read("after.pickle");
    assert_eq!(emit(&room, &[]), Some(2), "an existing file is kept");
    assert_eq!(emit(&room, &["--force"]), Some(0));
    assert_eq!(room.read("after.pickle"), first, "the same replay writes the same bytes");
    let again = room.vramwise(&["replay", "after.pickle"]).output().expect("the program runs");
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stdout));
    assert_eq!(room.names(), ["after.pickle"], "no temporary file stays");
}

#[test]
fn another_allocator_cannot_be_replayed() {
    let output = replay(&[MOE, "--conf", "backend:cudaMallocAsync"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no model of it"));
}

#[test]
fn a_change_of_settings_that_did_not_happen_is_a_question() {
    let report = json(&[MOE, "--conf-at", "20000=max_split_size_mb:128"]);
    assert!(report["verify"].is_null(), "{}", report["verify"]);
}

#[test]
fn an_input_is_never_written_over() {
    let room = Room::new("emit-over-input");
    let recording = std::fs::read(repository().join(OOM)).expect("a recording");
    room.write("in.gz", &recording);
    let all = ["replay", "in.gz", "--emit", "in.gz", "-f"];
    assert_eq!(room.vramwise(&all).output().expect("it runs").status.code(), Some(2));
    assert_eq!(room.read("in.gz"), recording);
}

#[test]
fn a_fraction_of_a_card_of_unknown_size_is_warned_of() {
    let warned = |args: &[&str]| {
        let output = replay(args).output().expect("it runs");
        String::from_utf8_lossy(&output.stderr).contains("give the card's size with --total")
    };
    let conf = "per_process_memory_fraction:0.5";
    assert!(warned(&[OOM, "--conf", conf]));
    assert!(warned(&[OOM, "--conf-at", &format!("10={conf}")]));
    assert!(!warned(&[OOM, "--conf", conf, "--total", "80GiB"]));
    assert!(!warned(&[OOM, "--conf", "max_split_size_mb:128"]));
}

#[test]
fn a_what_if_of_a_recording_that_is_not_reproduced_is_a_finding_and_says_how_far_it_goes() {
    let room = Room::new("what-if-of-a-part");
    let moe = repository().join(MOE);
    let moe = moe.to_str().expect("a path of letters");
    let changed = ["replay", moe, "--conf", "", "--conf-at", "20000=expandable_segments:True"];
    let emit = [&changed[..], &["--emit", "changed.pickle", "-q"]].concat();
    assert_eq!(room.vramwise(&emit).output().expect("it runs").status.code(), Some(0));
    let output =
        room.vramwise(&["replay", "changed.pickle", "--conf", ""]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the model parts from the recording at event"), "{said}");
}

//! `vramwise leaks`: what grows from step to step.

use std::process::Command;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{repository, vramwise};

const LEAK: &str = "testdata/snapshots/leak__default__stacks.snapshot.pickle.gz";
const LSTM: &str = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";
const FUZZ: &str = "testdata/snapshots/fuzz00__default.snapshot.pickle.gz";

/// `vramwise leaks ARGS`, run in the root of the repository.
fn leaks(args: &[&str]) -> Command {
    let mut command = vramwise(&["leaks"]);
    command.args(args).current_dir(repository());
    command
}

#[test]
fn leaks_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["leaks", "--help"]));
}

#[test]
fn a_leak_is_a_finding_with_its_line() {
    assert_cmd_snapshot!(leaks(&[LEAK]));
}

#[test]
fn a_program_without_a_leak_is_fine() {
    assert_cmd_snapshot!(leaks(&[LSTM, FUZZ]));
}

#[test]
fn a_marker_that_does_not_occur_is_wrong_usage() {
    assert_cmd_snapshot!(leaks(&[LEAK, "--marker", "epoch"]));
}

#[test]
fn a_leak_is_told_in_json() {
    let output = leaks(&[LEAK, "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &json["files"][0]["devices"][0];
    assert_eq!(json["leaks_found"], 1);
    assert_eq!(
        (device["steps_from"].as_str(), device["steps"].as_u64()),
        (Some("annotation"), Some(10))
    );
    assert_eq!(device["leaks"][0]["bytes_per_step"], 205_852_672);
    assert_eq!(device["leaks"][0]["place"], "train.py:182 w_leak");
}

#[test]
fn an_empty_marker_is_refused() {
    assert_eq!(leaks(&[LEAK, "--marker", ""]).output().unwrap().status.code(), Some(2));
}

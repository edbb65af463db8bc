//! `vramwise diff`: what changed between two snapshots.

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const DEFAULT: &str = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";
const EXPANDABLE: &str = "testdata/snapshots/lstm_varlen__expandable.snapshot.pickle.gz";
const STACKS: &str = "testdata/snapshots/oom_fragmented__default__stacks.snapshot.pickle.gz";

fn diff(args: &[&str]) -> std::process::Command {
    let mut command = vramwise(&["diff"]);
    command.args(args).current_dir(repository());
    command
}

#[test]
fn diff_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["diff", "--help"]));
}

#[test]
fn other_settings_and_what_they_changed() {
    assert_cmd_snapshot!(diff(&[DEFAULT, EXPANDABLE, "--by", "size"]));
}

#[test]
fn two_moments_of_one_program_are_compared_by_line() {
    let room = Room::new("diff-moments");
    let part = |to: &str, name: &str| {
        let source = repository().join(STACKS);
        let args = ["slice", source.to_str().unwrap(), "--to", to, "-o", name, "-q"];
        assert!(room.vramwise(&args).output().unwrap().status.success());
    };
    part("200", "early.pickle");
    part("440", "late.pickle");
    assert_cmd_snapshot!(room.vramwise(&["diff", "early.pickle", "late.pickle"]));
}

#[test]
fn what_blocks_are_for_and_when_they_came_is_compared() {
    assert_cmd_snapshot!(diff(&[DEFAULT, EXPANDABLE, "--by", "category"]));
    assert_cmd_snapshot!(diff(&[DEFAULT, EXPANDABLE, "--by", "phase"]));
}

#[test]
fn a_file_does_not_differ_from_itself() {
    let output = diff(&[STACKS, STACKS, "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &report["devices"][0];
    assert_eq!(device["groups"].as_array().map(Vec::len), Some(0));
    assert_eq!(device["groups_unchanged"], device["groups_total"]);
    assert_eq!(device["a"], device["b"]);
}

#[test]
fn what_cannot_be_compared_is_wrong_usage() {
    for (args, complaint) in [
        (["-", "-"], "standard input can be one of the two"),
        ([STACKS, "none.pickle"], "none.pickle"),
        ([STACKS, "testdata/attacks/code-inside-a-snapshot.pickle"], "code is never run"),
        ([STACKS, "testdata/attacks/other-empty.pickle"], "error: "),
    ] {
        let output = diff(&args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(output.stdout.is_empty() && told.contains(complaint), "{args:?}: {told}");
    }
}

#[test]
fn categories_of_one_s_own_are_compared() {
    let room = Room::new("diff-rules");
    room.write("mine.toml", "[[rule]]\ncategory = \"mine\"\nmin_size = \"1MiB\"\n");
    let rules = room.path().join("mine.toml");
    let rules = rules.to_str().unwrap();
    let args = [DEFAULT, STACKS, "--by", "category", "--rules", rules, "--json"];
    let output = diff(&args).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups = report["devices"][0]["groups"].as_array().unwrap();
    assert!(groups.iter().any(|g| g["name"] == "mine"), "{groups:?}");
    for (args, complaint) in [
        ([DEFAULT, STACKS, "--rules", rules].as_slice(), "add --by category"),
        (&[DEFAULT, STACKS, "--by", "category", "--rules", "none.toml"], "none.toml"),
    ] {
        let output = diff(args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(complaint), "{told}");
    }
}

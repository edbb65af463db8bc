//! `vramwise validate` on good, odd and hostile files.

use std::process::{Command, Stdio};

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

/// `vramwise validate ARGS`, run in the root of the repository.
fn validate(args: &[&str]) -> Command {
    let mut command = vramwise(&["validate"]);
    command.args(args).current_dir(repository());
    command
}

#[test]
fn a_whole_recording_can_be_replayed() {
    assert_cmd_snapshot!(validate(&["testdata/snapshots/moe__default.snapshot.pickle.gz"]));
}

#[test]
fn a_recording_that_began_in_mid_run_can_be_replayed_in_part() {
    assert_cmd_snapshot!(validate(&[
        "testdata/snapshots/public/lm-train-midrun.snapshot.pickle.gz"
    ]));
}

#[test]
fn a_file_from_elsewhere_is_told_as_such() {
    let file = "testdata/snapshots/public/synthetic-mosaic.snapshot.pickle.gz";
    assert_cmd_snapshot!(validate(&[file, "--json"]));
}

#[test]
fn a_snapshot_without_history_is_a_finding_with_the_way_to_record_one() {
    let room = Room::new("no-history");
    room.write("state.json", r#"{"segments": [], "device_traces": [[], []]}"#);
    assert_cmd_snapshot!(room.vramwise(&["validate", "state.json"]));
}

#[test]
fn a_device_that_the_file_lacks_is_wrong_usage() {
    let file = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";
    assert_cmd_snapshot!(validate(&[file, "--device", "3"]));
}

#[test]
fn code_in_a_pickle_is_refused_with_its_place() {
    assert_cmd_snapshot!(validate(&["testdata/attacks/code-inside-a-snapshot.pickle"]));
}

#[test]
fn a_file_that_is_not_there_is_unreadable_input() {
    assert_cmd_snapshot!(validate(&["testdata/no-such-file.pickle"]));
}

#[test]
fn a_directory_is_unreadable_input() {
    assert_cmd_snapshot!(validate(&["testdata/attacks"]));
}

#[test]
fn every_attack_file_is_refused_with_status_two_or_read() {
    let attacks = repository().join("testdata/attacks");
    let mut refused = 0;
    for entry in std::fs::read_dir(attacks).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let known =
            ["code-", "length-", "memo-", "stack-", "bomb-", "damaged-", "other-", "wrong-"];
        if !known.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let output = vramwise(&["validate"]).arg(&path).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {complaint}");
        assert!(output.stdout.is_empty(), "{name}");
        assert!(complaint.starts_with("error: ") && complaint.lines().count() <= 3, "{complaint}");
        assert!(complaint.contains(&name), "{name} is not named: {complaint}");
        refused += 1;
    }
    assert!(refused > 50, "{refused} files");
}

#[test]
fn standard_input_is_read_with_a_dash() {
    let file = repository().join("testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz");
    let input = std::fs::File::open(file).unwrap();
    let output = validate(&["-", "--json"]).stdin(Stdio::from(input)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains(r#""file": "standard input""#), "{report}");
    assert!(report.contains(r#""replayable": "yes""#), "{report}");
}

//! Where output goes: standard output or the file of `-o`, and never over an existing file.

use std::io::Read as _;
use std::process::Stdio;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, vramwise};

#[test]
fn a_report_goes_to_the_file_that_is_asked_for() {
    let room = Room::new("report-file");
    assert_cmd_snapshot!(room.vramwise(&["completions", "fish", "-o", "vramwise.fish"]));
    assert!(room.read("vramwise.fish").starts_with(b"#"));
    assert_eq!(room.names(), ["vramwise.fish"]);
}

#[test]
fn a_file_that_exists_is_kept() {
    let room = Room::new("existing-file");
    room.write("taken", "precious");
    assert_cmd_snapshot!(room.vramwise(&["man", "-o", "taken"]));
    assert_eq!(room.read("taken"), b"precious");
    assert_eq!(room.names(), ["taken"]);
}

#[test]
fn force_replaces_a_file_that_exists() {
    let room = Room::new("forced-file");
    room.write("taken", "precious");
    let output = room.vramwise(&["man", "-q", "-f", "-o", "taken"]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    assert_ne!(room.read("taken"), b"precious");
    assert_eq!(room.names(), ["taken"]);
}

#[test]
fn a_report_that_is_an_input_is_refused_even_with_force() {
    let room = Room::new("input-file");
    room.write("a.pickle", "recording");
    assert_cmd_snapshot!(room.vramwise(&["validate", "a.pickle", "-f", "-o", "./a.pickle"]));
    assert_eq!(room.read("a.pickle"), b"recording");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = vramwise(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(complaint, "");
}

#[test]
fn colour_goes_into_a_pipe_only_when_asked() {
    let complaint = |args: &[&str]| {
        let output = vramwise(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint(&["man", "tuna", "--color", "always"]).contains('\u{1b}'));
    assert!(!complaint(&["man", "tuna"]).contains('\u{1b}'));
    assert!(!complaint(&["man", "tuna", "--color", "never"]).contains('\u{1b}'));
}

//! `vramwise probe`: who is asked, what is refused, what is written. torch is a stand-in (`testdata/fake_torch`), which
//! has no device; that a device's own profile comes out is tested with the emulated one.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

fn command(room: &Room, args: &[&str]) -> Command {
    let mut command = room.vramwise(args);
    command
        .env("PYTHONPATH", repository().join("testdata/fake_torch"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("VRAMWISE_REHEARSAL", room.path())
        .env("VRAMWISE_LIB_DIR", room.path())
        .env("TMPDIR", room.path());
    room.write(
        "emulator.json",
        "{\"memory_bytes\": 1, \"devices\": 1, \"profile\": {\"name\": \"x\"}}",
    );
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(command: &mut Command, words: &[&str]) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for word in words {
        assert!(said(&output).contains(word), "{word}: {}", said(&output));
    }
}

#[test]
fn probe_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["probe", "--help"]));
}

#[test]
fn what_cannot_be_measured_is_refused_with_advice_and_nothing_is_left() {
    let room = Room::new("probe-refused");
    refused(&mut command(&room, &["probe"]), &["PyTorch finds no GPU", "nvidia-smi"]);
    refused(command(&room, &["probe"]).env("TORCH_CUDA", "none"), &["without CUDA"]);
    refused(&mut command(&room, &["probe", "--python", "/none/python3"]), &["/none/python3"]);
    refused(&mut command(&room, &["probe", "--id", "../x"]), &["letters, digits"]);
    refused(&mut command(&room, &["probe", "--no-workspaces", "--jobs", "x"]), &["--jobs"]);
    assert_eq!(room.names(), ["emulator.json"]);
}

#[test]
fn what_could_not_be_kept_is_told_before_the_program_runs() {
    let room = Room::new("probe-values");
    // Any shared object can be preloaded; this process has some.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let object = maps.split_whitespace().find(|word| word.contains("/libgcc_s.so")).unwrap();
    room.write("libvramwise_probe.so", std::fs::read(object).unwrap());
    let watched = |path: &str| command(&room, &["probe", "--values", path, "--", "touch", "ran"]);
    refused(&mut watched("none/v.jsonl"), &["cannot write", "none/v.jsonl"]);
    room.write("v.rank-1.jsonl", "");
    refused(&mut watched("v.jsonl"), &["v.rank-1.jsonl exists already"]);
    assert!(!room.path().join("ran").exists());

    let failed = command(&room, &["probe", "--values", "w.jsonl", "--", "false"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8_lossy(&failed.stdout);
    assert!(text.contains("ended with status 1; until then it had read nothing"), "{text}");
}

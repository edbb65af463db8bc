//! `vramwise run`: what the program finds in its environment. The allocator itself is tested under PyTorch.

#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, vramwise};

/// `vramwise run ARGS` with a cache directory in the room.
fn command(room: &Room, args: &[&str]) -> Command {
    let mut command = room.vramwise(&[&["run"], args].concat());
    command
        .env("VRAMWISE_CACHE_DIR", room.path().join("cache"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH")
        .env_remove("VRAMWISE_ALLOCATOR")
        .env_remove("VRAMWISE_ALLOCATOR_REPORT");
    command
}

fn text(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn run_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["run", "--help"]));
}

#[test]
fn the_program_is_told_to_install_the_allocator() {
    let room = Room::new("run-environment");
    let show = "echo $VRAMWISE_ALLOCATOR,$VRAMWISE_ALLOCATOR_REPORT,$1";
    let plain = command(&room, &["--", "sh", "-c", show, "sh", "--own"]).output().unwrap();
    assert_eq!(text(&plain), "1,,--own\n");
    let args = ["--settings", "a=1,b=2", "--report", "--", "sh", "-c", show];
    assert_eq!(text(&command(&room, &args).output().unwrap()), "a=1,b=2,1,\n");
}

#[test]
fn settings_of_the_environment_stay_where_none_are_given() {
    let room = Room::new("run-before");
    let show = ["--", "sh", "-c", "echo $VRAMWISE_ALLOCATOR"];
    for (before, told) in [("slack:2%", "slack:2%\n"), ("0", "1\n"), ("on", "1\n")] {
        let output = command(&room, &show).env("VRAMWISE_ALLOCATOR", before).output().unwrap();
        assert_eq!(text(&output), told);
    }
    let given = [&["--settings", "slack:3%"], &show[..]].concat();
    let output = command(&room, &given).env("VRAMWISE_ALLOCATOR", "slack:2%").output().unwrap();
    assert_eq!(text(&output), "slack:3%\n");
    let output = command(&room, &["--settings", "off", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_status_is_that_of_the_program() {
    let room = Room::new("run-status");
    let output = command(&room, &["--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_report_that_would_never_be_written_is_refused() {
    let room = Room::new("run-report");
    for asked in [&["--json"][..], &["-o", "held.txt"]] {
        let output = command(&room, &[asked, &["--", "true"]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no report of its own"));
    }
}

#[test]
fn a_program_that_is_not_there_is_told_by_name() {
    let room = Room::new("run-none");
    let output = command(&room, &["--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run no-such-program"));
}

#[test]
fn the_files_that_python_finds_are_written_once_and_whole() {
    let room = Room::new("run-files");
    let show = ["--", "sh", "-c", "echo $PYTHONPATH"];
    let first = text(&command(&room, &show).output().unwrap());
    assert_eq!(text(&command(&room, &show).output().unwrap()), first);
    let before = text(&command(&room, &show).env("PYTHONPATH", "/mine").output().unwrap());
    assert_eq!(before, format!("{}:/mine\n", first.trim()));
    let cache: Vec<_> = std::fs::read_dir(room.path().join("cache")).unwrap().flatten().collect();
    assert_eq!(cache.len(), 1, "nothing half-done stays");
    assert!(cache[0].path().join("package/vramwise/allocator/shim/shim.cpp").is_file());
}

#[test]
fn a_cache_that_others_can_write_is_not_trusted() {
    let room = Room::new("run-cache");
    let cache = room.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    // The program runs all the same, with PyTorch's own allocator.
    let output =
        command(&room, &["--", "sh", "-c", "echo $VRAMWISE_ALLOCATOR,$PYTHONPATH"]).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b",\n".as_slice()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("PyTorch's own allocator") && said.contains("VRAMWISE_CACHE_DIR"),
        "{said}"
    );
}

/// A module named torch, another start-up file, and a program that imports the one after the other.
#[test]
fn torch_is_followed_by_the_allocator_and_other_start_up_files_still_run() {
    let room = Room::new("run-python");
    std::fs::create_dir(room.path().join("own")).unwrap();
    room.write("own/torch.py", "__version__ = '2.11.0'\nclass version: cuda = None\n");
    room.write("own/sitecustomize.py", "print('mine')\n");
    let program = "import sys, torch; print('torch', torch.__spec__.name, 'vramwise.allocator' in sys.modules)";
    let output = command(&room, &["--", "python3", "-c", program])
        .env("PYTHONPATH", room.path().join("own"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\ntorch torch True\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "PyTorch's own allocator is used, as this PyTorch (2.11.0) is not a build for CUDA"
        ),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_program_without_torch_notices_nothing() {
    let room = Room::new("run-plain");
    let output =
        command(&room, &["--", "python3", "-c", "import json; print('fine')"]).output().unwrap();
    assert_eq!(text(&output), "fine\n");
}

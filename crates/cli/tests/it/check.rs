//! `vramwise check`: budgets, their reports, and the exit status.

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const DEFAULT: &str = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";
const EXPANDABLE: &str = "testdata/snapshots/lstm_varlen__expandable.snapshot.pickle.gz";
const LEAK: &str = "testdata/snapshots/leak__default__stacks.snapshot.pickle.gz";
const MIDRUN: &str = "testdata/snapshots/late_train__large12.snapshot.pickle.gz";

fn check(args: &[&str]) -> std::process::Command {
    let mut command = vramwise(&["check"]);
    command.args(args).current_dir(repository()).env_remove("GITHUB_STEP_SUMMARY");
    command
}

#[test]
fn check_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["check", "--help"]));
}

#[test]
fn what_is_over_a_limit_is_told_with_the_reason() {
    assert_cmd_snapshot!(check(&[
        DEFAULT,
        MIDRUN,
        "--max-peak-reserved",
        "2GiB",
        "--max-peak-allocated",
        "2GiB",
        "--max-fragmentation",
        "35%",
    ]));
}

#[test]
fn a_better_run_passes_and_a_worse_one_does_not() {
    assert_cmd_snapshot!(check(&[EXPANDABLE, "--baseline", DEFAULT]));
    assert_cmd_snapshot!(check(&[DEFAULT, "--baseline", EXPANDABLE, "--max-regression", "5%"]));
}

#[test]
fn a_peak_is_within_a_limit_that_it_reaches() {
    let limit = |bytes: &str| {
        let args = [EXPANDABLE, "--max-peak-reserved", bytes, "--json"];
        check(&args).output().unwrap()
    };
    let output = limit("1GiB");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let peak = report["checks"][0]["measured"].as_f64().unwrap() as u64;
    assert_eq!(limit(&peak.to_string()).status.code(), Some(0));
    assert_eq!(limit(&(peak - 1).to_string()).status.code(), Some(1));
}

#[test]
fn what_grows_in_every_step_is_held_against_a_limit() {
    assert_cmd_snapshot!(check(&[LEAK, DEFAULT, "--max-growth-per-step", "0"]));
    let growth = 205_852_672u64;
    for (limit, status) in [(growth, 0), (growth - 1, 1)] {
        let output = check(&[LEAK, "--max-growth-per-step", &limit.to_string()]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{limit}");
    }
    assert_cmd_snapshot!(check(&[LEAK, "--max-growth-per-step", "0", "--marker", "epoch"]));
    assert_cmd_snapshot!(check(&[MIDRUN, "--max-growth-per-step", "1GiB"]));
}

#[test]
fn junit_markdown_and_the_summary_of_a_workflow_are_written() {
    let room = Room::new("check-files");
    let file = repository().join(DEFAULT);
    room.write("summary.md", "before\n");
    let args = ["check", "a&b.pickle", "--max-peak-reserved", "1GiB", "--junit", "j.xml", "-q"];
    std::fs::copy(file, room.write("a&b.pickle", "")).unwrap();
    let output = room
        .vramwise(&args)
        .args(["--markdown", "m.md"])
        .env("GITHUB_STEP_SUMMARY", "summary.md")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |name| String::from_utf8(room.read(name)).unwrap();
    insta::assert_snapshot!(text("j.xml"));
    insta::assert_snapshot!(text("m.md"));
    assert_eq!(text("summary.md"), format!("before\n{}", text("m.md")));
}

#[test]
fn a_baseline_folder_has_files_of_the_same_names() {
    let room = Room::new("check-baseline");
    std::fs::create_dir(room.write("x", "").with_file_name("old")).unwrap();
    let source = repository().join(DEFAULT);
    std::fs::copy(&source, room.write("rank0.pickle", "")).unwrap();
    let args = ["check", "rank0.pickle", "--baseline", "old"];
    assert_cmd_snapshot!(room.vramwise(&args));
    std::fs::copy(&source, room.write("old/rank0.pickle", "")).unwrap();
    let mut command = room.vramwise(&args);
    assert!(command.env_remove("GITHUB_STEP_SUMMARY").output().unwrap().status.success());
}

#[test]
fn a_gate_that_sees_nothing_does_not_pass() {
    let room = Room::new("check-state");
    room.write(
        "state.json",
        r#"{"segments": [{"address": 512, "total_size": 2097152, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "small", "blocks": []}], "device_traces": [[]]}"#,
    );
    let output = room
        .vramwise(&["check", "state.json", "--max-peak-reserved", "1GiB"])
        .env_remove("GITHUB_STEP_SUMMARY")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && told.contains("no history"), "{told}");
}

#[test]
fn figures_that_cannot_be_right_are_not_checked_whatever_the_limit() {
    const ODD: &str = "testdata/snapshots/public/synthetic-mosaic.snapshot.pickle.gz";
    assert_cmd_snapshot!(check(&[
        ODD,
        "--max-peak-reserved",
        "20GiB",
        "--max-fragmentation",
        "99%"
    ]));
    for args in [
        [ODD, "--baseline", ODD].as_slice(),
        &[DEFAULT, "--baseline", ODD],
        &[ODD, "--max-peak-allocated", "1TiB"],
    ] {
        let output = check(args).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for made in report["checks"].as_array().unwrap() {
            assert_eq!(
                (made["checked"].as_bool(), made["passed"].as_bool()),
                (Some(false), Some(false))
            );
            assert!(
                made["measured"].is_null()
                    && made["reason"].as_str().unwrap().contains("impossible")
            );
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_in_every_report() {
    let room = Room::new("check-unread");
    std::fs::copy(repository().join(DEFAULT), room.write("a.pickle", "")).unwrap();
    room.write("b.pickle", "");
    let args = ["check", "a.pickle", "b.pickle", "--max-peak-reserved", "1TiB"];
    let output = room
        .vramwise(&args)
        .args(["--junit", "j.xml", "--markdown", "m.md"])
        .env_remove("GITHUB_STEP_SUMMARY")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 file could not be read") && !told.contains("within"), "{told}");
    let junit = String::from_utf8(room.read("j.xml")).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"0\" errors=\"1\""), "{junit}");
    assert!(junit.contains("<error message=\"cannot be used\">is empty</error>"), "{junit}");
    let markdown = String::from_utf8(room.read("m.md")).unwrap();
    assert!(markdown.contains("b.pickle") && !markdown.contains("✅ 1"), "{markdown}");
}

#[test]
fn without_a_limit_there_is_nothing_to_check() {
    assert_cmd_snapshot!(check(&[DEFAULT]));
    assert_cmd_snapshot!(check(&[DEFAULT, "--max-fragmentation", "-5%"]));
    assert_cmd_snapshot!(check(&[DEFAULT, "--max-peak-reserved", "3.5"]));
}

#[test]
fn two_outputs_are_two_files_and_no_summary_costs_the_report() {
    let room = Room::new("check-outputs");
    std::fs::copy(repository().join(DEFAULT), room.write("a.pickle", "")).unwrap();
    let args = ["check", "a.pickle", "--max-peak-reserved", "100GiB"];
    let output = room.vramwise(&args).args(["--junit", "x", "--markdown", "./x"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("the same file"), "{told}");
    let mut command = room.vramwise(&args);
    let output = command.env("GITHUB_STEP_SUMMARY", "none/summary.md").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("a.pickle"));
}

#[test]
fn a_peak_that_may_have_been_more_passes_no_limit() {
    const RING: &str = "testdata/snapshots/ring_fuzz__expandable.snapshot.pickle.gz";
    for (limit, checked) in [("4.92GiB", false), ("4.8GiB", true)] {
        let output = check(&[RING, "--max-peak-reserved", limit, "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{limit}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let made = &report["checks"][0];
        assert_eq!((&made["checked"], &made["exact"]), (&checked.into(), &false.into()), "{made}");
        assert_eq!(made["passed"], false, "{made}");
    }
}

#[test]
fn limits_and_names_that_mean_nothing_are_refused() {
    for args in [
        &[DEFAULT, "--max-fragmentation", "200%"][..],
        &[DEFAULT, "--max-growth-per-step", "0", "--marker", ""],
    ] {
        assert_eq!(check(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}

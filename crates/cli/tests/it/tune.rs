//! `vramwise tune`: the report, and when there is none.

use std::process::Command;

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const LSTM: &str = "testdata/snapshots/lstm_varlen__default.snapshot.pickle.gz";

/// `vramwise tune ARGS`, run in the root of the repository.
fn tune(args: &[&str]) -> Command {
    let mut command = vramwise(&["tune"]);
    command.args(args).current_dir(repository());
    command
}

#[test]
fn the_report_begins_with_the_line_to_paste() {
    assert_cmd_snapshot!(tune(&[LSTM, "--candidates", "60", "--top", "4"]));
}

#[test]
fn a_capacity_that_no_setting_fits_is_a_finding() {
    assert_cmd_snapshot!(tune(&[LSTM, "--candidates", "12", "--top", "2", "--capacity", "1GiB"]));
}

#[test]
fn nothing_is_recommended_from_a_file_that_the_model_does_not_fit() {
    let file = "testdata/snapshots/public/synthetic-mosaic.snapshot.pickle.gz";
    assert_cmd_snapshot!(tune(&[file]));
    let output = tune(&[file, "--json"]).output().expect("the program runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["recommended"].is_null());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_json_has_what_scripts_rely_on() {
    let output = tune(&[LSTM, "--candidates", "20", "--json"]).output().expect("the program runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["schema"], 1);
    let env = report["recommended"]["env"].as_str().expect("a line to paste");
    let conf = report["recommended"]["conf"].as_str().expect("its settings");
    assert_eq!(env, format!("PYTORCH_CUDA_ALLOC_CONF={conf}"));
    for key in [
        "conf",
        "peak_reserved_bytes",
        "peak_reserved_bytes_range",
        "peak_allocated_bytes",
        "oom_rate",
        "largest_free_block_bytes",
        "num_alloc_retries",
        "device_calls",
        "smallest_capacity_bytes",
        "dominated",
    ] {
        assert!(report["candidates"][0].get(key).is_some(), "{key}");
    }
    assert!(report["limit"]["peak_live_bytes"].as_u64() > Some(1 << 30));
}

#[test]
fn a_picture_of_memory_over_time_is_drawn() {
    let room = Room::new("plot");
    let lstm = repository().join(LSTM);
    let args = ["tune", lstm.to_str().expect("a path of letters"), "--candidates", "8", "-q"];
    let status = room.vramwise(&args).args(["--plot", "memory.svg"]).output().expect("it runs");
    assert_eq!(status.status.code(), Some(0));
    let svg = String::from_utf8(room.read("memory.svg")).expect("text");
    assert!(svg.starts_with("<svg") && svg.contains("expandable_segments:True"), "{}", &svg[..200]);
}

#[test]
fn a_directory_without_snapshots_is_unreadable_input() {
    let room = Room::new("no-snapshots");
    room.write("notes.txt", "nothing here");
    assert_cmd_snapshot!(room.vramwise(&["tune", "."]));
}

#[test]
fn an_input_is_never_drawn_over() {
    let room = Room::new("plot-over-input");
    let recording = std::fs::read(repository().join(LSTM)).expect("a recording");
    room.write("in.gz", &recording);
    let all = ["tune", "in.gz", "--plot", "in.gz", "-f", "--candidates", "4"];
    assert_eq!(room.vramwise(&all).output().expect("it runs").status.code(), Some(2));
    assert_eq!(room.read("in.gz"), recording);
}

#[test]
fn variations_of_programs_with_pools_and_streams_are_replayed() {
    for name in ["pools2__default", "pools5__expandable", "streams__default", "fuzz00__default"] {
        let file = format!("testdata/snapshots/{name}.snapshot.pickle.gz");
        let output =
            tune(&[&file, "--candidates", "4", "--jitter", "3", "-q"]).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {error}");
    }
}

#[test]
fn an_option_that_was_not_tried_is_not_said_to_be_useless() {
    let file = "testdata/snapshots/oom_fragmented__default.snapshot.pickle.gz";
    let output = tune(&[file, "--candidates", "2"]).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("max_split_size_mb was not tried alone"), "{text}");
}

#[test]
fn a_limit_guessed_from_one_file_is_not_imposed_on_another() {
    const MOE: &str = "testdata/snapshots/moe__default.snapshot.pickle.gz";
    const OOM: &str = "testdata/snapshots/oom_fragmented__default.snapshot.pickle.gz";
    let json = |files: &[&str]| -> serde_json::Value {
        let output = tune(files).args(["--candidates", "4", "--json"]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let (alone, both) = (json(&[MOE]), json(&[MOE, OOM]));
    assert!(both["capacity_bytes"].is_null());
    // What the larger program needs is what it needs alone, not squeezed into the other's limit.
    let peak = |report: &serde_json::Value| report["baseline"]["peak_reserved_bytes"].as_u64();
    assert_eq!(peak(&alone), peak(&both));
    assert_eq!(both["baseline"]["oom_rate"], 0.5);
    let assumed = both["assumptions"].to_string();
    assert!(assumed.contains("holds for this file alone"), "{assumed}");
    let text = |files: &[&str]| {
        let output = tune(files).args(["--candidates", "4"]).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ratio = |text: &str| {
        let (_, behind) = text.split_once("at one time; now ").expect("a ratio");
        behind.split(',').next().map(str::to_owned)
    };
    assert_eq!(ratio(&text(&[MOE])), ratio(&text(&[MOE, OOM])));
}

#[test]
fn what_does_not_fit_a_card_is_said_with_its_size_and_not_recommended() {
    let output = tune(&[LSTM, "--candidates", "4", "--total", "1GiB"]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("nothing fits a card of 1.00 GiB:"), "{text}");
    assert!(text.contains("← nearest") && !text.contains("← recommended"), "{text}");
}

#[test]
fn more_variations_than_memory_is_there_for_are_refused() {
    const MOE: &str = "testdata/snapshots/moe__default.snapshot.pickle.gz";
    for (number, words) in [("1000000000", "at most 10000"), ("10000", "is the most for these")] {
        let output = tune(&[MOE, "--jitter", number]).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(words), "{told}");
    }
}

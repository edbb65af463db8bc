//! `vramwise explain` on logs as people have them.

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, repository, vramwise};

const LOG: &str = "\
torch==2.6.0+cu124
PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True python train.py
[rank0]: step 17 loss 2.31
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of
 21.99 GiB of which 6.62 GiB is free. Including non-PyTorch memory, this process has 15.35 GiB memory in use. Of
 10%|█         | 10/100 [00:08<01:11,  1.25it/s]
 the allocated memory 6.15 GiB is allocated by PyTorch, and 8.71 GiB is reserved by PyTorch but unallocated.
";

#[test]
fn explain_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["explain", "--help"]));
}

#[test]
fn a_log_is_explained_in_words() {
    let room = Room::new("explain-words");
    room.write("train.log", LOG);
    assert_cmd_snapshot!(room.vramwise(&["explain", "train.log"]));
}

#[test]
fn a_log_is_explained_in_json() {
    let room = Room::new("explain-json");
    room.write("train.log", LOG);
    let output = room.vramwise(&["explain", "train.log", "--json"]).output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["kind"], "cuda");
    assert_eq!(json["numbers"]["tried_bytes"], 8_053_063_680_u64);
    assert_eq!(json["numbers"]["gpu"], 1);
    assert_eq!(json["rank"], 1);
    assert_eq!(json["cause"], "fragmentation");
    assert_eq!(json["events"][0]["line"], 4);
    assert_eq!(json["settings"][0]["remarks"][0]["code"], "refused");
    assert_eq!(json["torch_version"], "2.6");
}

#[test]
fn a_text_without_an_error_is_no_failure() {
    let room = Room::new("explain-none");
    room.write("train.log", "all is well\n");
    let output = room.vramwise(&["explain", "train.log", "--json"]).output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (json["kind"].as_str(), json["events"].as_array().map(Vec::len)),
        (Some("none"), Some(0))
    );
    assert!(json["numbers"]["tried_bytes"].is_null());
}

/// `vramwise explain ARGS --json`, run in the root of the repository.
fn json(args: &[&str]) -> serde_json::Value {
    let mut command = vramwise(&["explain", "--json"]);
    let output = command.args(args).current_dir(repository()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const FRAGMENTED: &str = "testdata/snapshots/oom_fragmented__default__stacks.snapshot.pickle.gz";
const GROWING: &str = "testdata/snapshots/oom_growing_batch__default__stacks.snapshot.pickle.gz";

#[test]
fn a_snapshot_is_explained_by_what_its_replay_proves() {
    assert_cmd_snapshot!(vramwise(&["explain", FRAGMENTED]).current_dir(repository()));
}

#[test]
fn a_snapshot_under_its_true_limit_says_that_no_setting_helps() {
    let args = ["explain", GROWING, "--capacity", "6GiB", "--top", "3"];
    assert_cmd_snapshot!(vramwise(&args).current_dir(repository()));
}

#[test]
fn a_snapshot_is_explained_in_json() {
    let json = json(&[FRAGMENTED]);
    assert_eq!(
        (json["kind"].as_str(), json["cause"].as_str()),
        (Some("cuda"), Some("memory_limit"))
    );
    assert_eq!(json["numbers"]["tried_bytes"], 2_684_354_560_u64);
    assert_eq!(json["numbers"]["allocated_bytes"], 5_464_129_536_u64);
    assert_eq!(json["replay"]["event"], 454);
    assert_eq!(json["replay"]["contributing"][0]["cause"], "fragmentation");
    assert_eq!(json["advice"][0]["proved"], true);
    assert_eq!(json["advice"][0]["trial"]["request_passes"], true);
    assert_eq!(json["snapshots"][0]["exact"], true);
    let place = json["replay"]["pinned"][0]["blocks"][0]["place"].as_str().unwrap();
    assert!(place.starts_with("train.py:199"), "{place}");
}

#[test]
fn a_snapshot_that_does_not_run_out_says_so() {
    let moe = "testdata/snapshots/moe__default.snapshot.pickle.gz";
    let json = json(&[moe]);
    assert_eq!((json["kind"].as_str(), json["cause"].as_str()), (Some("none"), Some("none_found")));
    assert_eq!(json["snapshots"][0]["fails"], false);
    let mut command = vramwise(&["explain", moe, "--capacity", "100GiB"]);
    let output = command.current_dir(repository()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let words = "No request runs out of memory under 100.00 GiB; a replay under it reserves at most 9.02 \
                 GiB; the recording had at most 9.02 GiB reserved.";
    assert!(text.contains(words), "{text}");
}

#[test]
fn packed_logs_and_logs_in_utf_16_say_the_same() {
    let room = Room::new("explain-packed");
    room.write("plain.log", LOG);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, LOG.as_bytes()).unwrap();
    room.write("packed.log", packed.finish().unwrap());
    let little: Vec<u8> = LOG.encode_utf16().flat_map(u16::to_le_bytes).collect();
    room.write("marked.log", [&[0xff, 0xfe], little.as_slice()].concat());
    room.write("unmarked.log", &little);
    let numbers = |name: &str| {
        let output = room.vramwise(&["explain", name, "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["cause"].clone(), json["numbers"].clone())
    };
    let plain = numbers("plain.log");
    assert_eq!(plain.0, "fragmentation");
    for name in ["packed.log", "marked.log", "unmarked.log"] {
        assert_eq!(numbers(name), plain, "{name}");
    }
}

#[test]
fn a_packed_log_that_is_cut_off_is_read_as_far_as_it_goes() {
    let room = Room::new("explain-cut");
    let steps: String =
        (0..20_000).map(|n| format!("step {n} loss {}\n", n * 7919 % 10_007)).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, format!("{LOG}{steps}").as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    room.write("cut.log.gz", &packed[..packed.len() / 2]);
    let output = room.vramwise(&["explain", "cut.log.gz", "--json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(0) && told.contains("what is before that was read"),
        "{told}"
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["numbers"]["tried_bytes"], 8_053_063_680_u64);
    // Of a snapshot, a part is none.
    let snapshot = std::fs::read(repository().join(FRAGMENTED)).unwrap();
    room.write("cut.pickle.gz", &snapshot[..snapshot.len() / 2]);
    let output = room.vramwise(&["explain", "cut.pickle.gz"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn options_for_snapshots_do_nothing_to_a_log_and_that_is_said() {
    let room = Room::new("explain-options");
    room.write("a.log", LOG);
    let output = room.vramwise(&["explain", "a.log", "--capacity", "24GiB"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("are about snapshots"));
    for args in [["explain", "a.log", "--capacity", "-1"], ["explain", "a.log", "--frames", "0"]] {
        let output = room.vramwise(&args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("invalid value"), "{told}");
    }
}

/// A log of one rank whose error is at this time of day.
fn rank_log(clock: &str) -> String {
    format!(
        "2026-03-01 {clock} ERROR CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
         capacity of 23.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process \
         has 22.00 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and \
         1.00 GiB is reserved by PyTorch but unallocated.\n"
    )
}

#[test]
fn the_rank_that_ran_out_first_is_named() {
    let room = Room::new("explain-ranks");
    std::fs::create_dir(room.path().join("logs")).unwrap();
    room.write("logs/rank0.log", rank_log("12:00:09,500"));
    room.write("logs/rank1.log", rank_log("12:00:07,250"));
    room.write("logs/rank2.log", "all is well\n");
    let output = room.vramwise(&["explain", "logs", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["first_in_time"], 1);
    assert_eq!(json["events"][1]["rank"], 1);
    assert_eq!(json["events"][1]["time_us"], 1_772_366_407_250_000_i64);
    let text = room.vramwise(&["explain", "logs"]).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains("rank 1 ran out of memory first"));
}

#[test]
fn of_several_files_the_readable_ones_are_explained() {
    let room = Room::new("explain-some");
    room.write("a.log", LOG);
    room.write("b.pickle", [0x80, 4, 0x95]);
    let output = room.vramwise(&["explain", ".", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["unreadable"][0]["file"], "./b.pickle");
    assert!(String::from_utf8_lossy(&output.stderr).contains("left out: ./b.pickle"));
}

#[test]
fn every_command_leaves_out_what_it_cannot_read_and_names_it() {
    let room = Room::new("explain-rule");
    std::fs::create_dir(room.path().join("files")).unwrap();
    let good = std::fs::read(repository().join(FRAGMENTED)).unwrap();
    room.write("files/rank0.pickle", &good);
    room.write("files/rank1.pickle", &good[..good.len() / 2]);
    room.write("files/rank2.pickle", [0x80, 4, 0x95]);
    for args in [
        vec!["explain", "files"],
        vec!["leaks", "files"],
        vec!["ranks", "files"],
        vec!["check", "files", "--max-peak-reserved", "1TiB"],
        vec!["explain", "files/rank1.pickle", "files/rank0.pickle", "absent.pickle"],
    ] {
        let mut command = room.vramwise(&args);
        command.env_remove("GITHUB_STEP_SUMMARY");
        let output = command.arg("--json").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let unreadable = json["unreadable"].as_array().unwrap();
        assert_eq!(unreadable.len(), 2, "{args:?}");
        for one in unreadable {
            let (file, reason) = (one["file"].as_str().unwrap(), one["reason"].as_str().unwrap());
            let warning = format!("warning: left out: {file}: {reason}");
            assert!(told.contains(&warning) && !reason.is_empty(), "{args:?}: {told}");
        }
    }
    std::fs::remove_file(room.path().join("files/rank0.pickle")).unwrap();
    for command in ["explain", "leaks", "ranks"] {
        let output = room.vramwise(&[command, "files"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{command}: {told}");
        assert!(told.contains("error: none of the 2 files can be used"), "{command}: {told}");
    }
}

#[test]
fn tables_over_files_say_causes_in_words() {
    let room = Room::new("explain-words-table");
    room.write("rank0.log", LOG);
    room.write("rank1.log", "java.lang.OutOfMemoryError: Java heap space\n");
    let output = room.vramwise(&["explain", "rank0.log", "rank1.log"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("another program's heap") && !text.contains("runtime_heap"), "{text}");
    let many: String = (1..6).map(|n| LOG.replace("7.50 GiB", &format!("{n}.50 GiB"))).collect();
    room.write("many.log", many);
    let output = room.vramwise(&["explain", "many.log"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !text.contains("refused_although_free") && text.contains("refused although free"),
        "{text}"
    );
}

#[test]
fn what_can_hold_no_error_is_not_called_free_of_them() {
    let room = Room::new("explain-no-log");
    room.write("core", (0..=255u8).cycle().take(5000).collect::<Vec<u8>>());
    room.write("half.json", r#"{"segments": [], "device_traces": [[{"action": "#);
    room.write(
        "negative.json",
        r#"{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": -5}]]}"#,
    );
    room.write("config.pickle", "(dp0\nVlr\np1\nF0.1\ns.");
    for (name, complaint) in [
        ("core", "is neither text nor a snapshot"),
        ("half.json", "EOF"),
        ("negative.json", "'size' is negative (-5)"),
        ("config.pickle", "not a memory snapshot"),
    ] {
        let output = room.vramwise(&["explain", name]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(complaint), "{name}: {told}");
    }
    // Such signs around an error do not hide it, and JSON may well be a log.
    room.write("dump", [&[0u8; 3000], LOG.as_bytes()].concat());
    room.write("lines.json", "{\"level\": \"info\", \"segments\": 3}\n");
    for (name, code) in [("dump", 0), ("lines.json", 0)] {
        let output = room.vramwise(&["explain", name, "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}");
    }
    let output = room.vramwise(&["explain", "dump"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("7.50 GiB"));
}

#[test]
fn a_snapshot_of_an_old_protocol_is_a_snapshot() {
    let room = Room::new("explain-protocol-0");
    let text = "(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\np3\n(lp4\n(lp5\n(dp6\nVaction\np7\nVoom\np8\nsVsize\np9\nI1024\nsVaddr\np10\nI0\nsVstream\np11\nI0\nsaas.";
    room.write("old.dump", text);
    let output = room.vramwise(&["explain", "old.dump", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["snapshots"][0]["events"], 1, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_thousand_errors_are_a_short_table() {
    let room = Room::new("explain-thousand");
    let many: String = (0..1000)
        .map(|n| LOG.replace("7.50", &format!("{}.{:02}", n / 100 + 1, n % 100)))
        .collect();
    room.write("many.log", many);
    let output = room.vramwise(&["explain", "many.log", "--top", "5"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("and 995 more (--top N shows more)"), "{text}");
    assert!(text.lines().count() < 200, "{text}");
}

#[test]
fn a_file_that_is_named_twice_counts_once() {
    let room = Room::new("explain-twice");
    room.write("a.log", LOG);
    let output = room.vramwise(&["explain", "a.log", "./a.log", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), json["events"].as_array().map(Vec::len)), (Some(0), Some(1)));
    assert!(String::from_utf8_lossy(&output.stderr).contains("was named already"));
}

#[test]
fn the_folders_of_a_launcher_are_looked_into() {
    let room = Room::new("explain-torchrun");
    for rank in [0, 3] {
        let folder = room.path().join(format!("logs/job_x/attempt_0/{rank}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stderr.log"), rank_log(&format!("12:00:0{},500", 9 - rank)))
            .unwrap();
    }
    let output = room.vramwise(&["explain", "logs", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["events"][1]["rank"], 3);
    assert_eq!(json["first_in_time"], 1);
}

#[test]
fn words_that_are_no_known_error_are_shown() {
    let room = Room::new("explain-unknown");
    room.write("db.log", "ok\nERROR:  out of memory\n");
    let output = room.vramwise(&["explain", "db.log"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("line 2 speaks of missing memory"), "{text}");
}

#[test]
fn what_cannot_be_read_is_told_as_such() {
    let room = Room::new("explain-other");
    room.write("snapshot.pickle", [0x80, 4, 0x95]);
    assert_cmd_snapshot!(room.vramwise(&["explain", "snapshot.pickle"]));
    std::fs::create_dir(room.path().join("empty")).unwrap();
    assert_eq!(room.vramwise(&["explain", "empty"]).output().unwrap().status.code(), Some(2));
    assert_eq!(room.vramwise(&["explain", "absent.log"]).output().unwrap().status.code(), Some(2));
}

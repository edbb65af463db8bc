//! `vramwise explain` on logs as people have them.

use insta_cmd::assert_cmd_snapshot;

use crate::room::{Room, vramwise};

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

#[test]
fn a_snapshot_and_a_directory_are_told_as_such() {
    let room = Room::new("explain-other");
    room.write("snapshot.pickle", [0x80, 4, 0x95]);
    assert_cmd_snapshot!(room.vramwise(&["explain", "snapshot.pickle"]));
    assert_eq!(room.vramwise(&["explain", "."]).output().unwrap().status.code(), Some(2));
    assert_eq!(room.vramwise(&["explain", "absent.log"]).output().unwrap().status.code(), Some(2));
}

//! Recordings made under vramwise's allocator: every command takes their requests, and none compares their blocks.

use serde_json::Value;

use crate::room::Room;

/// Three requests that vramwise's allocator put into pages as large as they are, the second one given back.
fn recorded(conf: &str) -> String {
    const MIB: u64 = 1 << 20;
    let mut events = Vec::new();
    let mut time = 0;
    let mut event = |action: &str, addr: u64, size: u64| {
        time += 1;
        events.push(format!(
            "{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":0,\"time_us\":{time}}}"
        ));
    };
    for (addr, size) in [(1 << 40, 4 * MIB), (2 << 40, 6 * MIB), (3 << 40, 30 * MIB)] {
        event("segment_map", addr, size);
        event("alloc", addr, size);
    }
    event("free_requested", 2 << 40, 6 * MIB);
    event("free_completed", 2 << 40, 6 * MIB);
    let segments: Vec<String> = [(1u64 << 40, 4 * MIB, "active_allocated"), (2 << 40, 6 * MIB, "inactive"), (3 << 40, 30 * MIB, "active_allocated")]
        .iter()
        .map(|(addr, size, state)| {
            let used = if *state == "inactive" { 0 } else { *size };
            format!(
                "{{\"device\":0,\"address\":{addr},\"total_size\":{size},\"allocated_size\":{used},\"active_size\":{used},\
                 \"requested_size\":{used},\"stream\":0,\"segment_type\":\"large\",\"segment_pool_id\":[0,0],\
                 \"is_expandable\":true,\"frames\":[],\"blocks\":[{{\"address\":{addr},\"size\":{size},\
                 \"requested_size\":{used},\"state\":\"{state}\"}}]}}"
            )
        })
        .collect();
    format!(
        "{{\"segments\":[{}],\"device_traces\":[[{}]],\"external_annotations\":[],\"allocator_settings\":\
         {{\"PYTORCH_CUDA_ALLOC_CONF\":\"{conf}\",\"expandable_segments\":true}}}}",
        segments.join(","),
        events.join(",")
    )
}

/// Exit status, text with single spaces, and JSON of a command on the file `ours.json`.
fn answer(room: &Room, args: &[&str]) -> (i32, String, Value) {
    room.write("ours.json", recorded("backend:vramwise"));
    let text = room.vramwise(args).output().unwrap();
    let json = room.vramwise(args).arg("--json").output().unwrap();
    let words = String::from_utf8(text.stdout).unwrap();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    (text.status.code().unwrap(), words, serde_json::from_slice(&json.stdout).unwrap())
}

#[test]
fn replay_takes_the_requests_and_compares_nothing() {
    let room = Room::new("ours-replay");
    let (status, text, json) = answer(&room, &["replay", "ours.json"]);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("recorded under vramwise's allocator: its blocks are not compared"),
        "{text}"
    );
    assert_eq!((&json["recorded_allocator"], &json["verify"]), (&"vramwise".into(), &Value::Null));
    // PyTorch's own: 20 MiB for the first two, which share a segment, and 30.
    assert_eq!(json["stats"]["reserved_bytes.all.peak"], 50 << 20);
    let (status, _, json) = answer(&room, &["replay", "ours.json", "--capacity", "45MiB"]);
    assert_eq!((status, json["oom"].as_array().unwrap().len()), (1, 1));
}

#[test]
fn without_the_word_in_its_settings_the_same_file_is_compared() {
    let room = Room::new("ours-unsaid");
    room.write("unsaid.json", recorded(""));
    let output = room.vramwise(&["replay", "unsaid.json", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["recorded_allocator"], &json["verify"]["first_divergence"]["event"]),
        (&"pytorch".into(), &0.into())
    );
}

#[test]
fn tune_tries_settings_on_the_requests() {
    let room = Room::new("ours-tune");
    let (status, text, json) = answer(&room, &["tune", "ours.json"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("its blocks are not compared, its requests are replayed"), "{text}");
    assert_eq!(json["files"][0]["recorded_allocator"], "vramwise");
    assert_eq!(json["files"][0]["exact"], false);
}

#[test]
fn other_commands_name_the_allocator_and_claim_nothing() {
    let room = Room::new("ours-others");
    let (status, text, json) = answer(&room, &["validate", "ours.json"]);
    assert_eq!(
        (status, &json["allocator"], &json["replayable"]),
        (0, &"vramwise".into(), &"yes".into())
    );
    assert!(text.contains("allocator vramwise's, in the place of PyTorch's"), "{text}");
    let (_, _, json) = answer(&room, &["inspect", "ours.json"]);
    assert!(
        json["devices"][0]["evidence_reason"].as_str().unwrap().contains("vramwise's allocator"),
        "{json}"
    );
    assert_eq!(json["devices"][0]["peaks"]["requested"]["bytes"], 40 << 20);
    let (_, text, json) = answer(&room, &["explain", "ours.json", "--capacity", "20MiB"]);
    assert!(
        text.contains("Whether a request would run out of memory under 20.00 MiB is not known"),
        "{text}"
    );
    assert_eq!(json["snapshots"][0]["fails"], Value::Null);
    let redacted =
        room.vramwise(&["redact", "ours.json", "-o", "redacted.pickle"]).output().unwrap();
    assert_eq!(redacted.status.code(), Some(0));
    let output = room.vramwise(&["validate", "redacted.pickle", "--json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["allocator"], "vramwise");
}

#[test]
fn requests_that_make_no_sense_are_a_finding() {
    let room = Room::new("ours-nonsense");
    let text = recorded("backend:vramwise").replace("\"free_requested\"", "\"alloc\"");
    room.write("odd.json", text);
    let output = room.vramwise(&["replay", "odd.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(words.contains("its requests make no sense from event"), "{words}");
    assert_eq!(room.vramwise(&["tune", "odd.json"]).output().unwrap().status.code(), Some(1));
}

//! Recordings in which only some steps have stacks: every report that names lines says so.

use std::fmt::Write as _;

use serde_json::Value;

use crate::room::Room;

const MIB: u64 = 1 << 20;

/// A recording of 8 steps as the recorder samples them, of which the first three have stacks. Each keeps 2 MiB more.
fn sampled() -> String {
    let (mut events, mut marks, mut segments) = (Vec::new(), String::new(), Vec::new());
    for step in 0..8u64 {
        let (addr, time) = ((step + 1) * 2 * MIB, 10 * step + 1);
        let frames = match step {
            0..3 => ",\"frames\":[{\"filename\":\"train.py\",\"line\":7,\"name\":\"train\"}]",
            _ => "",
        };
        for action in ["segment_alloc", "alloc"] {
            events.push(format!(
                "{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{},\"stream\":0,\"time_us\":{time}{frames}}}",
                2 * MIB
            ));
        }
        segments.push(format!(
            "{{\"device\":0,\"address\":{addr},\"total_size\":{0},\"allocated_size\":{0},\"active_size\":{0},\
             \"requested_size\":{0},\"stream\":0,\"segment_type\":\"large\",\"segment_pool_id\":[0,0],\
             \"is_expandable\":false,\"frames\":[],\"blocks\":[{{\"address\":{addr},\"size\":{0},\
             \"requested_size\":{0},\"state\":\"active_allocated\"{frames}}}]}}",
            2 * MIB
        ));
        let comma = if marks.is_empty() { "" } else { "," };
        let _ = write!(
            marks,
            "{comma}{{\"stage\":\"END\",\"name\":\"vramwise.step#{step}\",\"device\":0,\"time_us\":{}}}",
            time + 1
        );
    }
    format!(
        "{{\"segments\":[{}],\"device_traces\":[[{}]],\"external_annotations\":[{marks}],\
         \"vramwise_recorder\":{{\"steps_with_stacks\":[0,1,2]}}}}",
        segments.join(","),
        events.join(",")
    )
}

/// The report on the file `sampled.json` as text with single spaces, and as JSON.
fn report(args: &[&str]) -> (String, Value) {
    let room = Room::new(&format!("stacks-{}", args.join("-")));
    room.write("sampled.json", sampled());
    let text = room.vramwise(args).output().unwrap();
    let json = room.vramwise(args).arg("--json").output().unwrap();
    assert!(text.stderr.is_empty(), "{}", String::from_utf8_lossy(&text.stderr));
    let text = String::from_utf8(text.stdout).unwrap();
    (
        text.split_whitespace().collect::<Vec<_>>().join(" "),
        serde_json::from_slice(&json.stdout).unwrap(),
    )
}

const WHICH: &str = "only 3 of the 8 steps in the history were recorded with stacks (0-2), 6.00 MiB of 16.00 MiB requested";

#[test]
fn inspect_says_which_steps_have_stacks() {
    let (text, json) = report(&["inspect", "sampled.json"]);
    assert!(text.contains(&format!("Stacks: {WHICH}")), "{text}");
    let told = &json["devices"][0]["sampled_stacks"];
    assert_eq!(told["steps_with_stacks"], serde_json::json!([0, 1, 2]));
    assert_eq!((&told["steps"], &told["requested_bytes"]), (&8.into(), &(16 * MIB).into()));
    assert_eq!(told["requested_with_stack_bytes"], 6 * MIB);
}

#[test]
fn leaks_says_by_what_it_tells_blocks_apart() {
    let (text, json) = report(&["leaks", "sampled.json"]);
    assert!(text.contains("3 of 8 steps were recorded with stacks, too few to compare"), "{text}");
    let told = &json["files"][0]["devices"][0]["some_stacks"];
    assert_eq!((&told["steps_with_stacks"], &told["told_apart_by"]), (&3.into(), &"size".into()));
}

#[test]
fn explain_and_diff_say_it_too() {
    let (text, json) = report(&["explain", "sampled.json", "--capacity", "12MiB"]);
    assert!(text.contains(WHICH), "{text}");
    assert_eq!(json["snapshots"][0]["sampled_stacks"]["steps"], 8, "{json}");
    let (text, json) = report(&["diff", "sampled.json", "sampled.json"]);
    assert!(text.contains(&format!("stacks in A: {WHICH}")), "{text}");
    assert_eq!(json["devices"][0]["b"]["sampled_stacks"]["steps"], 8);
}

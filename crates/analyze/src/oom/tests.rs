use serde_json::Value as Json;

use super::*;

fn cases() -> Vec<Json> {
    let text = include_str!("../../../../testdata/oom/cases.jsonl");
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// What is wrong with the numbers of a case, in words; the first event with numbers is the one meant.
fn differences(case: &Json, events: &[Event]) -> Vec<String> {
    let none = Numbers::default();
    let numbers = events.iter().find(|e| e.numbers.any()).or(events.first()).map_or(&none, |e| &e.numbers);
    let mut out = Vec::new();
    for (key, got) in [
        ("tried_bytes", numbers.tried),
        ("total_bytes", numbers.total),
        ("free_bytes", numbers.free),
        ("allocated_bytes", numbers.allocated),
        ("reserved_bytes", numbers.reserved),
        ("reserved_unallocated_bytes", numbers.reserved_unallocated),
        ("process_in_use_bytes", numbers.process_in_use),
    ] {
        let want = case.get(key).and_then(Json::as_u64);
        let close = match (want, got) {
            (None, None) => true,
            (Some(want), Some(got)) => got.bytes.abs_diff(want) <= got.slop.max(1),
            _ => false,
        };
        if !close {
            out.push(format!("{key}: {want:?} expected, not {:?}", got.map(|a| a.bytes)));
        }
    }
    let gpu = case.get("gpu").and_then(Json::as_u64);
    if gpu.is_some() && numbers.gpu.map(u64::from) != gpu {
        out.push(format!("gpu: {gpu:?} expected, not {:?}", numbers.gpu));
    }
    out
}

#[test]
fn every_case_yields_its_numbers() {
    let mut wrong = Vec::new();
    for case in cases() {
        let events = find_events(case["text"].as_str().unwrap());
        let mut faults = differences(&case, &events);
        if events.is_empty() {
            faults.push("no event".to_owned());
        }
        if !faults.is_empty() {
            wrong.push(format!("{}: {}", case["id"], faults.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

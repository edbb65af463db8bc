//! Other programs' formats, read back.

use std::collections::BTreeMap;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use vramwise_analyze::peak::{self, Options};
use vramwise_files::convert::{TableKind, folded, table, write_csv, write_parquet, write_perfetto};
use vramwise_types::Action;

use crate::{options, pickled, recording, through_a_file};

const WITH_STACKS: &str = "oom_fragmented__default__stacks";

#[test]
fn folded_stacks_add_up_to_the_peak() {
    for name in [WITH_STACKS, "lstm_varlen__expandable", "public/lm-train-200", "mempool__default"]
    {
        let snapshot = recording(name);
        let version = snapshot.version_guess.unwrap_or_default();
        let inspection = peak::inspect(&snapshot, &Options::new(version)).unwrap();
        let memory = &inspection.devices[0].memory;
        let stacks = folded(&snapshot, 0, memory.when.event, &options(&snapshot)).unwrap();
        assert!(stacks.exact);
        assert_eq!(stacks.bytes, memory.allocated.bytes, "{name}");
        let sum: u64 = stacks
            .text
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, stacks.bytes);
    }
}

#[test]
fn a_folded_stack_runs_from_the_outermost_frame_inwards() {
    let snapshot = recording(WITH_STACKS);
    let stacks = folded(&snapshot, 0, Some(300), &options(&snapshot)).unwrap();
    let first = stacks.text.lines().next().unwrap();
    assert!(first.starts_with("<module> (train.py:309);main (train.py:297);"), "{first}");
}

#[test]
fn slices_of_one_row_of_a_trace_never_overlap_and_counters_end_where_the_file_does() {
    for name in [WITH_STACKS, "streams__default", "late_fuzz__default"] {
        let snapshot = recording(name);
        let mut out = Vec::new();
        write_perfetto(&snapshot, &mut out).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut slices = 0;
        let mut reserved = 0;
        for event in trace["traceEvents"].as_array().unwrap() {
            let number = |key: &str| event[key].as_u64().unwrap();
            match event["ph"].as_str().unwrap() {
                "X" => {
                    let end = ends.entry(number("tid")).or_default();
                    assert!(number("ts") >= *end, "{name}: {event}");
                    *end = number("ts") + number("dur");
                    slices += 1;
                }
                "C" if event["name"] == "reserved" => {
                    reserved = event["args"]["bytes"].as_u64().unwrap();
                }
                _ => {}
            }
        }
        let device = &snapshot.devices[0];
        let allocs = device.events.action.iter().filter(|a| **a == Action::Alloc).count();
        assert!(slices >= allocs, "{name}");
        assert_eq!(reserved, device.segments.iter().map(|s| s.total_size).sum::<u64>(), "{name}");
    }
}

#[test]
fn the_row_that_viewers_put_first_is_the_first_row_of_each_device() {
    let mut snapshot = recording("streams__default");
    let device = snapshot.devices[0].clone();
    snapshot.devices.push(device);
    let mut out = Vec::new();
    write_perfetto(&snapshot, &mut out).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let mut rows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["name"] == "thread_name" {
            let row = event["tid"].as_u64().unwrap();
            rows.entry(event["pid"].as_u64().unwrap()).or_default().push(row);
        }
    }
    assert_eq!(rows.len(), 2);
    for (pid, rows) in rows {
        assert!(rows.len() > 2 && rows.is_sorted(), "{pid}: {rows:?}");
        // The thread with the number of its process is the main one, which Perfetto shows above the others.
        assert_eq!(rows[0], pid);
    }
}

#[test]
fn a_parquet_file_holds_the_rows_of_the_table() {
    let snapshot = recording(WITH_STACKS);
    let events = &snapshot.devices[0].events;
    let table = table(&snapshot, TableKind::Events, None);
    let mut out = Vec::new();
    write_parquet(&table, &mut out).unwrap();
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("events.parquet");
    std::fs::write(&path, out).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut rows = 0;
    for (i, row) in reader.get_row_iter(None).unwrap().enumerate() {
        let row = row.unwrap();
        assert_eq!(row.get_ulong(1).unwrap(), i as u64);
        assert_eq!(row.get_string(2).unwrap(), events.action[i].name());
        assert_eq!(row.get_ulong(4).unwrap(), events.size[i]);
        rows += 1;
    }
    assert_eq!(rows, events.len());
}

#[test]
fn every_table_has_rows_of_equal_length_in_csv() {
    let snapshot = recording("graphs_shared__default");
    let device = &snapshot.devices[0];
    for (kind, count) in [
        (TableKind::Events, device.events.len()),
        (TableKind::Blocks, device.blocks.len()),
        (TableKind::Segments, device.segments.len()),
    ] {
        let table = table(&snapshot, kind, None);
        assert_eq!(table.rows(), count);
        let mut out = Vec::new();
        write_csv(&table, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), count + 1, "no field of this file has a line break");
    }
}

#[test]
fn pickles_and_json_lead_back_to_the_same_snapshot() {
    for name in [WITH_STACKS, "public/lm-train-midrun", "pools5__expandable"] {
        let snapshot = recording(name);
        let first = pickled(&snapshot);
        assert_eq!(pickled(&through_a_file(&snapshot)), first, "{name}");
        let mut json = Vec::new();
        vramwise_trace::write_json(&snapshot, &mut json).unwrap();
        let back =
            vramwise_trace::read_slice(&json, &vramwise_trace::ReadOptions::default()).unwrap();
        assert_eq!(pickled(&back), first, "{name}");
    }
}

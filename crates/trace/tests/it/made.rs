//! Snapshots made by hand, and comparing snapshots.

use std::path::PathBuf;

use vramwise_trace::{ReadError, ReadOptions, Snapshot, read_slice, write_json};

use crate::py::{Py, pickle};

/// A file of the repository's test data.
pub(crate) fn testdata(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata")).join(name)
}

/// A string.
pub(crate) fn text(s: &str) -> Py {
    Py::Str(s.into())
}

/// A dictionary with text keys.
pub(crate) fn dict<const N: usize>(pairs: [(&str, Py); N]) -> Py {
    Py::Dict(pairs.into_iter().map(|(k, v)| (text(k), v)).collect())
}

/// A list.
pub(crate) fn list<const N: usize>(items: [Py; N]) -> Py {
    Py::List(items.into())
}

/// `data` with a key set to a value, or without it.
pub(crate) fn with(mut data: Py, key: &str, value: impl Into<Option<Py>>) -> Py {
    let Py::Dict(pairs) = &mut data else { panic!("not a dictionary") };
    let at = pairs.iter().position(|(k, _)| *k == text(key));
    match (value.into(), at) {
        (Some(value), Some(at)) => pairs[at].1 = value,
        (Some(value), None) => pairs.push((text(key), value)),
        (None, Some(at)) => drop(pairs.remove(at)),
        (None, None) => panic!("there is no {key}"),
    }
    data
}

pub(crate) const BASE: i128 = 0x7f00_0000_0000;

/// An entry as PyTorch 2.11 writes it.
pub(crate) fn event(action: &str, addr: i128, size: i128) -> Py {
    dict([
        ("action", text(action)),
        ("addr", Py::Int(addr)),
        ("size", Py::Int(size)),
        ("stream", Py::Int(0)),
        ("time_us", Py::Int(1_700_000_000_000_000)),
        ("compile_context", text("N/A")),
        ("user_metadata", text("")),
    ])
}

/// A frame.
pub(crate) fn frame(name: &str, line: i128) -> Py {
    dict([("name", text(name)), ("filename", text("train.py")), ("line", Py::Int(line))])
}

/// A block as PyTorch 2.11 writes it.
pub(crate) fn block(address: i128, size: i128, state: &str) -> Py {
    dict([
        ("address", Py::Int(address)),
        ("size", Py::Int(size)),
        ("requested_size", Py::Int(size - 12)),
        ("state", text(state)),
        ("frames", list([])),
    ])
}

/// A segment of 2 MiB as PyTorch 2.11 writes it.
pub(crate) fn segment(address: i128) -> Py {
    dict([
        ("device", Py::Int(0)),
        ("address", Py::Int(address)),
        ("total_size", Py::Int(2 << 20)),
        ("allocated_size", Py::Int(512)),
        ("active_size", Py::Int(512)),
        ("requested_size", Py::Int(500)),
        ("stream", Py::Int(0)),
        ("segment_type", text("small")),
        ("segment_pool_id", Py::Tuple(vec![Py::Int(0), Py::Int(0)])),
        ("is_expandable", Py::Bool(false)),
        ("frames", list([])),
        (
            "blocks",
            list([
                block(address, 512, "active_allocated"),
                block(address + 512, (2 << 20) - 512, "inactive"),
            ]),
        ),
    ])
}

/// Two entries and the segment that they lead to.
pub(crate) fn snapshot() -> Py {
    dict([
        ("segments", list([segment(BASE)])),
        (
            "device_traces",
            list([list([event("segment_alloc", BASE, 2 << 20), event("alloc", BASE, 500)])]),
        ),
        (
            "allocator_settings",
            dict([
                ("PYTORCH_CUDA_ALLOC_CONF", text("")),
                ("max_split_size", Py::Int(-1)),
                ("garbage_collection_threshold", Py::Float(0.0)),
                ("expandable_segments", Py::Bool(false)),
                ("pinned_num_register_threads", Py::Int(1)),
                ("release_lock_on_cudamalloc", Py::Bool(false)),
                ("roundup_power2_divisions", dict([("1", Py::Int(0)), ("2", Py::Int(4))])),
            ]),
        ),
        ("external_annotations", list([])),
    ])
}

/// A snapshot of one device with these entries and nothing else.
pub(crate) fn history(events: Vec<Py>) -> Py {
    dict([("segments", list([])), ("device_traces", list([Py::List(events)]))])
}

pub(crate) fn read(data: &Py) -> Snapshot {
    read_slice(&pickle(data, 4), &ReadOptions::default()).unwrap()
}

pub(crate) fn refused(data: &Py) -> ReadError {
    read_slice(&pickle(data, 4), &ReadOptions::default()).unwrap_err()
}

pub(crate) fn salvaged(data: &Py) -> Snapshot {
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    read_slice(&pickle(data, 4), &options).unwrap()
}

/// Everything that is in the tables, as text.
pub(crate) fn shown(snapshot: &Snapshot) -> String {
    let mut json = Vec::new();
    write_json(snapshot, &mut json).unwrap();
    String::from_utf8(json).unwrap()
}

/// The codes of a snapshot's warnings.
pub(crate) fn codes(snapshot: &Snapshot) -> Vec<&'static str> {
    snapshot.warnings.iter().map(|w| w.code).collect()
}

//! Damage to good snapshots.

use std::fs;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use std::io::Read;
use vramwise_trace::{ReadError, ReadOptions, read_slice};

use crate::made::{
    BASE, codes, dict, event, frame, history, list, read, refused, salvaged, snapshot, testdata,
    with,
};
use crate::py::{Py, pickle};

fn small() -> Vec<u8> {
    let with_frames = |e| with(e, "frames", list([frame("f", 1), frame("g", 2)]));
    let traces = list([
        list([with_frames(event("alloc", BASE, 500)), event("free_requested", BASE, 500)]),
        list([event("alloc", BASE, 700), event("alloc", BASE + 1024, 900)]),
    ]);
    pickle(&with(snapshot(), "device_traces", traces), 4)
}

#[test]
fn a_snapshot_cut_off_at_any_byte_is_refused_with_that_place() {
    let bytes = small();
    for end in 1..bytes.len() {
        match read_slice(&bytes[..end], &ReadOptions::default()) {
            Err(ReadError::Pickle { source, events }) => {
                assert!(source.offset <= end as u64, "at {end}");
                assert!(events <= 4, "at {end}");
            }
            other => panic!("at {end}: {other:?}"),
        }
    }
    let last = read_slice(&bytes[..bytes.len() - 1], &ReadOptions::default()).unwrap_err();
    assert!(last.to_string().ends_with("(4 events were complete before that)"), "{last}");
}

#[test]
fn what_is_complete_of_a_cut_off_snapshot_can_be_had() {
    let bytes = small();
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    let mut before = 0;
    for end in 1..bytes.len() {
        let Ok(snapshot) = read_slice(&bytes[..end], &options) else { continue };
        assert_eq!(codes(&snapshot)[0], "damaged-file", "at {end}");
        let events: usize = snapshot.devices.iter().map(|d| d.events.len()).sum();
        assert!(events >= before, "at {end}: more bytes give no less");
        before = events;
        for device in &snapshot.devices {
            for (size, expected) in device.events.size.iter().zip([500, 500]) {
                assert!([expected, 700, 900].contains(size), "at {end}");
            }
        }
    }
    assert_eq!(before, 4);
}

#[test]
fn a_real_recording_cut_off_anywhere_never_panics() {
    let file = fs::File::open(testdata("snapshots/streams__default.snapshot.pickle.gz")).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    let mut most = 0;
    for end in (1..bytes.len()).step_by(211) {
        assert!(read_slice(&bytes[..end], &ReadOptions::default()).is_err());
        if let Ok(snapshot) = read_slice(&bytes[..end], &options) {
            most = most.max(snapshot.devices[0].events.len());
        }
    }
    assert!(most > 950, "{most}");
}

#[test]
fn a_compressed_file_cut_off_gives_its_part() {
    let bytes = fs::read(testdata("snapshots/moe__default.snapshot.pickle.gz")).unwrap();
    let half = &bytes[..bytes.len() / 2];
    let error = read_slice(half, &ReadOptions::default()).unwrap_err();
    assert!(
        matches!(error, ReadError::Compressed { format: "gzip", bytes: 100_000.., .. }),
        "{error}"
    );
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    let part = read_slice(half, &options).unwrap();
    assert_eq!(codes(&part)[0], "damaged-file");
    assert!(part.devices[0].events.len() > 10_000);
}

#[test]
fn a_damaged_entry_is_refused_or_left_out() {
    let good = event("alloc", BASE, 500);
    let bad = with(event("alloc", BASE, 500), "size", Py::Str("many".into()));
    let data = history(vec![good.clone(), bad.clone(), good, bad]);
    let error = refused(&data);
    assert_eq!(error.to_string(), "device 0, event 1: its 'size' is not a number but str");
    let snapshot = salvaged(&data);
    assert_eq!(snapshot.devices[0].events.len(), 2);
    let warning = &snapshot.warnings[0];
    assert_eq!(warning.code, "damaged-entries");
    assert!(warning.message.starts_with("2 events could not be used"), "{}", warning.message);
}

#[test]
fn a_damaged_block_or_segment_is_refused_or_left_out() {
    let part = snapshot();
    let Py::Dict(pairs) = &part else { panic!("a dictionary") };
    let Py::List(segments) = &pairs[0].1 else { panic!("a list") };
    let bad_segment = with(segments[0].clone(), "address", Py::None);
    let other = with(part.clone(), "segments", list([bad_segment, segments[0].clone()]));
    assert_eq!(
        refused(&other).to_string(),
        "device 0, segment 0: its 'address' is not a number but None"
    );
    let snapshot = salvaged(&other);
    assert_eq!(snapshot.devices[0].segments.len(), 1);
    assert_eq!(snapshot.devices[0].events.len(), 2);
    assert_eq!(codes(&snapshot)[0], "damaged-entries");
}

#[test]
fn json_cut_off_gives_its_part() {
    let text = crate::made::shown(&read(&snapshot()));
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    let mut most = 0;
    for end in 1..text.trim_end().len() {
        assert!(read_slice(&text.as_bytes()[..end], &ReadOptions::default()).is_err(), "at {end}");
        if let Ok(snapshot) = read_slice(&text.as_bytes()[..end], &options) {
            assert_eq!(codes(&snapshot)[0], "damaged-file");
            most = most.max(snapshot.devices[0].events.len());
        }
    }
    assert_eq!(most, 2);
}

#[test]
fn padding_is_ignored_and_other_data_is_mentioned() {
    let mut bytes = pickle(&snapshot(), 4);
    bytes.extend([0; 3]);
    assert_eq!(codes(&read_slice(&bytes, &ReadOptions::default()).unwrap()), ["no-stacks"]);
    bytes.extend(b"more");
    let snapshot = read_slice(&bytes, &ReadOptions::default()).unwrap();
    assert!(codes(&snapshot).contains(&"trailing-data"));
}

#[test]
fn damage_of_a_thousand_kinds_is_survived() {
    // Every value of a good snapshot replaced by every kind of value, one at a time.
    let kinds = [
        Py::None,
        Py::Bool(true),
        Py::Int(-1),
        Py::Int(1 << 100),
        Py::Float(f64::NAN),
        Py::Float(1e300),
        Py::Str("text".into()),
        Py::Bytes(vec![1, 2]),
        list([]),
        list([Py::None]),
        Py::Tuple(vec![Py::Int(1)]),
        dict([]),
        dict([("action", Py::None)]),
        event("alloc", BASE, 1),
    ];
    let data = with(
        snapshot(),
        "external_annotations",
        list([dict([("stage", Py::Str("START".into()))])]),
    );
    let count = count(&data);
    assert!(count > 50);
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    for at in 0..count {
        for kind in &kinds {
            let mut changed = data.clone();
            replace(&mut changed, &mut { at }, kind);
            for protocol in [0, 4] {
                let bytes = pickle(&changed, protocol);
                let strict = read_slice(&bytes, &ReadOptions::default());
                let lenient = read_slice(&bytes, &options);
                assert!(lenient.is_ok() || strict.is_err());
            }
        }
    }
}

fn count(data: &Py) -> usize {
    1 + match data {
        Py::List(items) | Py::Tuple(items) => items.iter().map(count).sum(),
        Py::Dict(pairs) => pairs.iter().map(|(_, v)| count(v)).sum(),
        _ => 0,
    }
}

/// Replaces the value number `at` in order of appearance.
fn replace(data: &mut Py, at: &mut usize, with: &Py) {
    if *at == 0 {
        *data = with.clone();
        *at = usize::MAX;
        return;
    }
    *at -= 1;
    match data {
        Py::List(items) | Py::Tuple(items) => {
            for item in items {
                if *at != usize::MAX {
                    replace(item, at, with);
                }
            }
        }
        Py::Dict(pairs) => {
            for (_, value) in pairs {
                if *at != usize::MAX {
                    replace(value, at, with);
                }
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_snapshots_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), protocol in 0..=5u8, salvage: bool) {
        let mut bytes = pickle(&snapshot(), protocol);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read_slice(&bytes, &ReadOptions { salvage, ..ReadOptions::default() });
    }

    #[test]
    fn mutated_json_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), salvage: bool) {
        let mut bytes = crate::made::shown(&read(&snapshot())).into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read_slice(&bytes, &ReadOptions { salvage, ..ReadOptions::default() });
    }

    #[test]
    fn arbitrary_bytes_never_panic(start in prop::sample::select(vec![&b""[..], b"\x80\x04", b"(", b"{", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"<"]), bytes: Vec<u8>, salvage: bool) {
        let mut all = start.to_vec();
        all.extend(bytes);
        let _ = read_slice(&all, &ReadOptions { salvage, ..ReadOptions::default() });
    }
}

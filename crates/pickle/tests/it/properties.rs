//! Properties of arbitrary data and of arbitrary bytes.

use std::io::{self, Read};

use proptest::prelude::*;
use vramwise_pickle::{Limits, NoSink, Reader, read_slice};

use crate::py::{Py, data, pickle};
use crate::sinks::TakeAll;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec!["addr", "size", "", "N/A", "free_requested", "日本", "a\\b\n"]).prop_map(String::from),
        1 => any::<String>(),
        1 => "[a-z]{250,600}",
    ]
}

fn leaf() -> impl Strategy<Value = Py> {
    prop_oneof![
        Just(Py::None),
        any::<bool>().prop_map(Py::Bool),
        prop_oneof![0..300i128, any::<i64>().prop_map(i128::from), any::<i128>()].prop_map(Py::Int),
        any::<f64>().prop_filter("NaN is not equal to itself", |x| !x.is_nan()).prop_map(Py::Float),
        text().prop_map(Py::Str),
    ]
}

fn plain() -> impl Strategy<Value = Py> {
    leaf().prop_recursive(4, 64, 12, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..12);
        let pairs = prop::collection::vec((leaf(), inner.clone()), 0..12);
        prop_oneof![
            items().prop_map(Py::List),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Py::Tuple),
            pairs.prop_map(Py::Dict),
        ]
    })
}

/// Data of which only protocols 4 and 5 know all types.
fn modern() -> impl Strategy<Value = Py> {
    let scalars = || prop::collection::vec(leaf(), 0..5);
    prop_oneof![
        scalars().prop_map(Py::Set),
        scalars().prop_map(Py::FrozenSet),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Py::Bytes),
    ]
}

/// Gives a few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(buffer.len());
        (&mut self.0).take(n as u64).read(buffer)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plain_data_comes_back_from_every_protocol(data_in in plain(), protocol in 0..=5u8) {
        let bytes = pickle(&data_in, protocol);
        let document = read_slice(&bytes, &Limits::default()).unwrap();
        prop_assert_eq!(data(&document), data_in);
        prop_assert_eq!(document.bytes, bytes.len() as u64);
    }

    #[test]
    fn sets_and_bytes_come_back(data_in in modern(), protocol in 4..=5u8) {
        let document = read_slice(&pickle(&data_in, protocol), &Limits::default()).unwrap();
        prop_assert_eq!(data(&document), data_in);
    }

    #[test]
    fn a_sink_sees_the_same_data(data_in in plain(), protocol in 0..=5u8) {
        let mut sink = TakeAll::default();
        let mut reader = Reader::new(&Limits::default(), &mut sink);
        let document = reader.read_slice(&pickle(&data_in, protocol)).unwrap();
        prop_assert_eq!(sink.data(&document.tables, document.root), data_in);
    }

    #[test]
    fn a_stream_is_read_like_a_slice(data_in in plain(), protocol in 0..=5u8, n in 1..20usize) {
        let bytes = pickle(&data_in, protocol);
        let mut sink = NoSink;
        let document = Reader::new(&Limits::default(), &mut sink).read(Trickle(&bytes, n)).unwrap();
        prop_assert_eq!(data(&document), data_in);
    }

    #[test]
    fn every_part_of_a_pickle_is_refused_with_its_place(data_in in plain(), protocol in 0..=5u8, part in 0.0..1.0) {
        let bytes = pickle(&data_in, protocol);
        let end = (bytes.len() as f64 * part) as usize;
        let error = read_slice(&bytes[..end], &Limits::default()).unwrap_err();
        prop_assert!(error.offset <= end as u64);
    }

    #[test]
    fn damaged_pickles_never_panic(data_in in plain(), protocol in 0..=5u8, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = pickle(&data_in, protocol);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        survives(&bytes);
    }

    #[test]
    fn instructions_in_any_order_never_panic(ops in prop::collection::vec(prop::sample::select(b"()].012FIJKLMNQSTUVXad}eghjlpqrstuGBC\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8f\x90\x91\x94\x95\x00\x01\x02\n".to_vec()), 0..200)) {
        survives(&ops);
    }

    #[test]
    fn containers_in_any_order_never_panic(ops in prop::collection::vec(prop::sample::select(b"(((]]}}NNNaseut201\x94\x94\x8f\x90\x91\x86h\x00h\x01h\x02".to_vec()), 0..200)) {
        survives(&ops);
    }
}

/// Slice, stream and a sink agree on bytes of any kind, and none panics.
fn survives(bytes: &[u8]) {
    let slice = read_slice(bytes, &Limits::default());
    let mut none = NoSink;
    let stream = Reader::new(&Limits::default(), &mut none).read(Trickle(bytes, 3));
    let mut sink = TakeAll::default();
    let mut reader = Reader::new(&Limits::default(), &mut sink);
    let taken = reader.read_slice(bytes);
    match (&slice, &stream) {
        (Ok(_), Ok(_)) => {}
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        _ => panic!("slice and stream disagree"),
    }
    let changed =
        |e: &vramwise_pickle::Error| matches!(e.kind, vramwise_pickle::ErrorKind::ChangedAfterUse);
    match (&slice, &taken) {
        (Ok(_), Ok(_)) => {}
        (_, Err(e)) if changed(e) => {}
        (Ok(_), Err(e)) => panic!("a sink makes a good pickle bad: {e}"),
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        (Err(e), Ok(_)) => panic!("a sink makes a bad pickle good: {e}"),
    }
    let part = reader.salvage();
    let _ = part.tables.view(part.root);
}

//! What a sink sees and what becomes of it.

use vramwise_pickle::{ErrorKind, External, Limits, NoSink, Reader, Sink, Tables, Value};

use crate::py::{Py, data_of, pickle};

/// Takes over every dictionary, and every list of what was taken over before.
#[derive(Default)]
pub(crate) struct TakeAll {
    dicts: Vec<Vec<Value>>,
    lists: Vec<Vec<Value>>,
}

impl TakeAll {
    pub(crate) fn data(&self, tables: &Tables, value: Value) -> Py {
        data_of(tables, value, &|kind, id| {
            let all =
                |items: &[Value]| items.iter().map(|v| self.data(tables, *v)).collect::<Vec<_>>();
            match kind {
                0 => {
                    let items = all(&self.dicts[id as usize]);
                    Py::Dict(items.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect())
                }
                _ => Py::List(all(&self.lists[id as usize])),
            }
        })
    }
}

impl Sink for TakeAll {
    fn dict(&mut self, items: &[Value], _: &Tables) -> Option<External> {
        self.dicts.push(items.to_vec());
        Some(External { kind: 0, id: self.dicts.len() as u32 - 1 })
    }

    fn list(&mut self, items: &[Value], _: &Tables) -> Option<External> {
        if !items.iter().all(|v| v.as_external().is_some()) {
            return None;
        }
        self.lists.push(items.to_vec());
        Some(External { kind: 1, id: self.lists.len() as u32 - 1 })
    }

    fn append(&mut self, list: External, items: &[Value], _: &Tables) -> bool {
        if list.kind == 1 {
            self.lists[list.id as usize].extend_from_slice(items);
        }
        list.kind == 1
    }
}

#[test]
fn references_lead_to_what_the_sink_took_over() {
    // [d, d, d] with d = {"a": 1}, memoized before it is complete.
    let mut sink = TakeAll::default();
    let bytes = b"\x80\x04]\x94(}\x94(\x8c\x01a\x94K\x01uh\x01h\x01e.";
    let document = Reader::new(&Limits::default(), &mut sink).read_slice(bytes).unwrap();
    let dict = Py::Dict(vec![(Py::Str("a".into()), Py::Int(1))]);
    assert_eq!(sink.data(&document.tables, document.root), Py::List(vec![dict; 3]));
    assert_eq!(sink.dicts.len(), 1);
}

#[test]
fn a_list_that_grows_in_batches_is_one_list() {
    let item = |i| Py::Dict(vec![(Py::Int(i), Py::None)]);
    let data = Py::List((0..2500).map(item).collect());
    let mut sink = TakeAll::default();
    let document =
        Reader::new(&Limits::default(), &mut sink).read_slice(&pickle(&data, 4)).unwrap();
    assert_eq!(sink.data(&document.tables, document.root), data);
    assert_eq!((sink.lists.len(), sink.dicts.len()), (1, 2500));
}

#[test]
fn protocol_0_completes_what_is_put_into_another() {
    let item =
        |i| Py::Dict(vec![(Py::Str("a".into()), Py::Int(i)), (Py::Str("b".into()), Py::None)]);
    let data = Py::Dict(vec![(Py::Str("all".into()), Py::List((0..50).map(item).collect()))]);
    let mut sink = TakeAll::default();
    let document =
        Reader::new(&Limits::default(), &mut sink).read_slice(&pickle(&data, 0)).unwrap();
    assert_eq!(sink.data(&document.tables, document.root), data);
    assert_eq!((sink.lists.len(), sink.dicts.len()), (1, 50));
}

#[test]
fn what_others_refer_to_already_is_not_taken_over() {
    // [d, d] with d = {"a": d}: the inner reference exists before d is complete.
    let mut sink = TakeAll::default();
    let bytes = b"\x80\x04]\x94(}\x94(\x8c\x01ah\x01uh\x01e.";
    let document = Reader::new(&Limits::default(), &mut sink).read_slice(bytes).unwrap();
    assert!(sink.dicts.is_empty());
    let items = document.tables.sequence(document.root).unwrap();
    assert_eq!(items[0], items[1]);
    assert_eq!(document.tables.get(items[0], "a"), Some(items[0]));
    // Likewise with a duplicate on the stack.
    for bytes in [&b"\x80\x04](}2(NNue."[..], b"\x80\x04](}\x94\x94(NNue."] {
        let mut sink = TakeAll::default();
        let document = Reader::new(&Limits::default(), &mut sink).read_slice(bytes).unwrap();
        assert!(sink.dicts.is_empty(), "{bytes:?}");
        assert!(document.tables.sequence(document.root).is_some());
    }
}

#[test]
fn a_change_after_completion_is_told() {
    for bytes in [
        // A dictionary that gets another item, singly or in a batch.
        &b"\x80\x04}(K\x01NuK\x02Ns."[..],
        b"\x80\x04}(K\x01Nu(K\x02Nu.",
        // A list inside a dictionary that was taken over.
        b"\x80\x04]\x94(}(K\x01](NNe\x94uh\x01(Nee.",
    ] {
        let mut sink = TakeAll::default();
        let error = Reader::new(&Limits::default(), &mut sink).read_slice(bytes).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::ChangedAfterUse), "{error}");
        assert!(Reader::new(&Limits::default(), &mut NoSink).read_slice(bytes).is_ok());
    }
}

#[test]
fn a_damaged_pickle_gives_what_was_complete() {
    let entry = |i| Py::Dict(vec![(Py::Str("n".into()), Py::Int(i))]);
    let data = Py::Dict(vec![
        (Py::Str("first".into()), Py::List(vec![Py::Int(1), Py::Int(2)])),
        (Py::Str("second".into()), Py::List(vec![Py::List((0..5).map(entry).collect())])),
        (Py::Str("third".into()), Py::None),
    ]);
    let bytes = pickle(&data, 4);
    let mut seen = 0;
    for end in 0..bytes.len() {
        let mut sink = TakeAll::default();
        let mut reader = Reader::new(&Limits::default(), &mut sink);
        assert!(reader.read_slice(&bytes[..end]).is_err());
        let part = reader.salvage();
        let Py::Dict(part) = sink.data(&part.tables, part.root) else { continue };
        let second = part.iter().find(|(k, _)| *k == Py::Str("second".into()));
        let Some((_, Py::List(outer))) = second else { continue };
        assert!(outer.len() <= 1, "at {end}: {outer:?}");
        let Some(Py::List(entries)) = outer.first() else { continue };
        assert!(entries.len() >= seen, "at {end}: more bytes give no less");
        seen = entries.len();
        for (i, e) in entries.iter().enumerate().take(entries.len().saturating_sub(1)) {
            assert_eq!(*e, entry(i as i128), "at {end}");
        }
    }
    assert_eq!(seen, 5);
}

//! Instructions that are read, each as picklers of some protocol write it.

use vramwise_pickle::{Limits, View, read_slice};

use crate::py::{Py, data, pickle};

fn read(bytes: &[u8]) -> Py {
    data(&read_slice(bytes, &Limits::default()).unwrap())
}

fn text(s: &str) -> Py {
    Py::Str(s.into())
}

#[test]
fn protocol_0_is_text() {
    assert_eq!(read(b"I42\n."), Py::Int(42));
    assert_eq!(read(b"I01\n."), Py::Bool(true));
    assert_eq!(read(b"I00\n."), Py::Bool(false));
    assert_eq!(
        read(b"L-123456789012345678901234567890L\n."),
        Py::Int(-123456789012345678901234567890)
    );
    assert_eq!(read(b"F-0.5\n."), Py::Float(-0.5));
    assert_eq!(read(b"Fnan\n.").type_name(), "float");
    assert_eq!(read(b"S'it\\'s'\n."), text("it's"));
    assert_eq!(read(b"S\"\\xff\"\n."), Py::Bytes(vec![0xff]));
    assert_eq!(read(b"Vna\\u00efve\n."), text("naïve"));
    assert_eq!(read(b"(lp0\nI1\naI2\nag0\n0."), Py::List(vec![Py::Int(1), Py::Int(2)]));
    assert_eq!(read(b"(I1\nI2\nl."), Py::List(vec![Py::Int(1), Py::Int(2)]));
    assert_eq!(read(b"(S'a'\nI1\nd."), Py::Dict(vec![(text("a"), Py::Int(1))]));
    assert_eq!(read(b"(dS'a'\nI1\ns."), Py::Dict(vec![(text("a"), Py::Int(1))]));
    assert_eq!(read(b"(I1\nt."), Py::Tuple(vec![Py::Int(1)]));
}

impl Py {
    fn type_name(&self) -> &'static str {
        match self {
            Py::Float(_) => "float",
            _ => "something else",
        }
    }
}

#[test]
fn the_stack_can_be_shuffled() {
    assert_eq!(read(b"K\x01K\x020."), Py::Int(1));
    assert_eq!(read(b"K\x01(K\x02K\x031."), Py::Int(1));
    assert_eq!(read(b"K\x01(0."), Py::Int(1));
    assert_eq!(read(b"(K\x072t."), Py::Tuple(vec![Py::Int(7), Py::Int(7)]));
}

#[test]
fn integers_of_any_length_are_read() {
    assert_eq!(read(b"J\xff\xff\xff\xff."), Py::Int(-1));
    assert_eq!(read(b"\x8a\x00."), Py::Int(0));
    assert_eq!(read(b"\x8a\x01\x80."), Py::Int(-128));
    assert_eq!(read(b"\x8a\x02\xff\x00."), Py::Int(255));
    let nine = b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.";
    assert_eq!(read(nine), Py::Int(u64::MAX.into()));
    let mut long = vec![0x8b, 100, 0, 0, 0];
    long.extend([1; 100]);
    long.push(b'.');
    let document = read_slice(&long, &Limits::default()).unwrap();
    assert_eq!(document.tables.view(document.root), View::BigInt(&[1; 100]));
    assert_eq!(document.tables.int(document.root), None);
}

#[test]
fn binary_strings_of_every_width_are_read() {
    assert_eq!(read(b"U\x02ab."), text("ab"));
    assert_eq!(read(b"T\x02\0\0\0ab."), text("ab"));
    assert_eq!(read(b"X\x02\0\0\0ab."), text("ab"));
    assert_eq!(read(b"\x8c\x02ab."), text("ab"));
    assert_eq!(read(b"\x8d\x02\0\0\0\0\0\0\0ab."), text("ab"));
    assert_eq!(read(b"U\x01\xff."), Py::Bytes(vec![0xff]));
    assert_eq!(read(b"C\x02ab."), Py::Bytes(b"ab".into()));
    assert_eq!(read(b"B\x02\0\0\0ab."), Py::Bytes(b"ab".into()));
    assert_eq!(read(b"\x8e\x02\0\0\0\0\0\0\0ab."), Py::Bytes(b"ab".into()));
    assert_eq!(read(b"\x96\x02\0\0\0\0\0\0\0ab."), Py::Bytes(b"ab".into()));
    // Python writes half a surrogate pair as three bytes, which is no UTF-8.
    assert_eq!(read(b"\x8c\x04a\xed\xb2\x80."), text("a\u{fffd}"));
}

#[test]
fn sets_keep_their_order() {
    assert_eq!(read(b"\x8f\x94(K\x03K\x01\x90."), Py::Set(vec![Py::Int(3), Py::Int(1)]));
    assert_eq!(read(b"(K\x03K\x01\x91."), Py::FrozenSet(vec![Py::Int(3), Py::Int(1)]));
}

#[test]
fn a_list_may_contain_itself() {
    let document = read_slice(b"\x80\x04]\x94h\x00a.", &Limits::default()).unwrap();
    let View::List(items) = document.tables.view(document.root) else { panic!("a list") };
    assert_eq!(items, [document.root]);
    let document = read_slice(b"\x80\x04}\x94(K\x01h\x00u.", &Limits::default()).unwrap();
    let View::Dict(items) = document.tables.view(document.root) else { panic!("a dictionary") };
    assert_eq!(items[1], document.root);
}

#[test]
fn what_follows_the_pickle_is_counted() {
    let document = read_slice(b"\x80\x04N.\0\0\0ab\0", &Limits::default()).unwrap();
    assert_eq!((document.protocol, document.bytes), (4, 4));
    assert_eq!((document.padding, document.trailing), (3, 3));
}

#[test]
fn all_protocols_say_the_same() {
    let data = Py::Dict(vec![
        (text("a"), Py::List(vec![Py::Int(1), Py::None, Py::Bool(true), Py::Float(0.25)])),
        (text("é\\"), Py::Tuple(vec![text("a"), text("é\\"), Py::Int(1 << 90)])),
        (Py::Int(-3), Py::List((0..2500).map(Py::Int).collect())),
    ]);
    for protocol in 0..=5 {
        assert_eq!(read(&pickle(&data, protocol)), data, "protocol {protocol}");
    }
}

#[test]
fn what_is_shared_stays_shared() {
    // A list of two million references to one list, which is a hundred million items long if unfolded.
    let mut bytes =
        b"\x80\x04]\x94(]\x94(NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNe".to_vec();
    bytes.extend(b"h\x01".repeat(2_000_000));
    bytes.extend(b"e.");
    let document = read_slice(&bytes, &Limits::default()).unwrap();
    let View::List(items) = document.tables.view(document.root) else { panic!("a list") };
    assert_eq!(items.len(), 2_000_001);
    assert!(items.iter().all(|item| *item == items[0]));
}

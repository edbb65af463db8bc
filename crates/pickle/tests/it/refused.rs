//! What is refused, with what message and where.

use std::io::Read;

use vramwise_pickle::{Error, ErrorKind, Limits, NoSink, Reader, read_slice};

fn error(bytes: &[u8]) -> Error {
    let error = read_slice(bytes, &Limits::default()).unwrap_err();
    let streamed = Reader::new(&Limits::default(), &mut NoSink).read(bytes).unwrap_err();
    assert_eq!(error.to_string(), streamed.to_string(), "a stream is refused like a slice");
    error
}

#[track_caller]
fn assert_code(bytes: &[u8], at: u64, opcode: &str, asks: Option<&str>) {
    let error = error(bytes);
    assert_eq!(error.offset, at);
    match error.kind {
        ErrorKind::Code { opcode: op, name } => {
            assert_eq!(op, opcode);
            assert_eq!(name.as_deref(), asks);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn code_is_refused_with_its_place_and_its_name() {
    assert_code(b"cos\nsystem\n.", 0, "GLOBAL", Some("os.system"));
    assert_code(b"\x80\x02}cposix\nsystem\n.", 3, "GLOBAL", Some("posix.system"));
    assert_code(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", 14, "STACK_GLOBAL", Some("os.system"));
    assert_code(b"\x80\x04NN\x93.", 4, "STACK_GLOBAL", None);
    assert_code(b"\x93.", 0, "STACK_GLOBAL", None);
    assert_code(b"(S'x'\nios\nsystem\n.", 6, "INST", Some("os.system"));
    assert_code(b"})R.", 2, "REDUCE", None);
    assert_code(b"}}b.", 2, "BUILD", None);
    assert_code(b"(}o.", 2, "OBJ", None);
    assert_code(b"})\x81.", 2, "NEWOBJ", None);
    assert_code(b"})}\x92.", 3, "NEWOBJ_EX", None);
    assert_code(b"Psome id\n.", 0, "PERSID", Some("some id"));
    assert_code(b"K\x07Q.", 2, "BINPERSID", Some("7"));
    assert_code(b"\x82\x05.", 0, "EXT1", Some("extension code 5"));
    assert_code(b"\x83\x05\x01.", 0, "EXT2", Some("extension code 261"));
    assert_code(b"\x84\x05\x01\0\0.", 0, "EXT4", Some("extension code 261"));
    assert!(matches!(error(b"\x97.").kind, ErrorKind::OutOfBand));
    assert!(matches!(error(b"N\x98.").kind, ErrorKind::OutOfBand));
}

#[test]
fn a_name_in_a_message_is_short_and_on_one_line() {
    let mut bytes = b"cos\x1b[31m".to_vec();
    bytes.extend([b'x'; 10_000]);
    bytes.extend(b"\nsystem\n.");
    let message = error(&bytes).to_string();
    assert!(message.len() < 400, "{message}");
    assert!(!message.contains('\x1b'));
}

#[test]
fn a_declared_length_takes_no_memory_before_the_bytes_are_there() {
    for bytes in [
        &b"X\xff\xff\xff\x0fab."[..],
        b"B\xff\xff\xff\x0fab.",
        b"\x8d\xff\xff\xff\x0f\0\0\0\0ab.",
        b"\x8e\xff\xff\xff\x0f\0\0\0\0ab.",
        b"\x96\xff\xff\xff\x0f\0\0\0\0ab.",
        b"T\xff\xff\xff\x0fab.",
        b"\x8b\xff\xff\x00\x00ab.",
    ] {
        assert!(matches!(error(bytes).kind, ErrorKind::Truncated { .. }), "{bytes:?}");
    }
    for bytes in [&b"X\xff\xff\xff\xff."[..], b"\x8d\0\0\0\0\0\0\0\x80.", b"\x8b\xff\xff\xff\x7f."]
    {
        assert!(matches!(error(bytes).kind, ErrorKind::Limit { .. }), "{bytes:?}");
    }
    for bytes in [&b"T\xff\xff\xff\xff."[..], b"\x8b\xff\xff\xff\xff.", b"Np-5\n."] {
        assert!(matches!(error(bytes).kind, ErrorKind::Negative), "{bytes:?}");
    }
}

#[test]
fn limits_are_kept() {
    let limited = |bytes: &[u8], change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        match read_slice(bytes, &limits).unwrap_err().kind {
            ErrorKind::Limit { what, .. } => what,
            other => panic!("{other}"),
        }
    };
    let repeat = |bytes: &[u8]| {
        let mut all = bytes.repeat(5000);
        all.push(b'.');
        all
    };
    assert_eq!(limited(&repeat(b"N"), |l| l.stack = 1000), "values at one time");
    assert_eq!(
        limited(&repeat(b"]"), |l| l.containers = 1000),
        "lists, dictionaries, tuples and sets"
    );
    assert_eq!(limited(&repeat(b"("), |l| l.depth = 1000), "levels of nesting");
    assert_eq!(limited(&repeat(b"N\x94"), |l| l.memo = 1000), "memo entries");
    assert_eq!(limited(&repeat(b"]\x94("), |l| l.memo = 1000), "memo entries");
    assert_eq!(limited(b"\x8c\x05abcde.", |l| l.input_bytes = 4), "bytes of input");
    assert_eq!(limited(b"X\x05\0\0\0abcde.", |l| l.string_bytes = 4), "bytes in one string");
    assert_eq!(limited(b"\x8b\x05\0\0\0abcde.", |l| l.int_bytes = 4), "bytes in one integer");
    // A stream that never ends.
    let limits = Limits { input_bytes: 1 << 20, ..Limits::default() };
    let endless = std::io::repeat(b'0').chain(&b""[..]);
    let text = std::io::Read::chain(&b"V"[..], endless);
    let error = Reader::new(&limits, &mut NoSink).read(text).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Limit { what: "bytes of input", .. }), "{error}");
}

#[test]
fn references_must_have_been_stored() {
    for bytes in [
        &b"h\0."[..],
        b"j\xff\xff\xff\xff.",
        b"g99\n.",
        b"N\x94h\x01.",
        b"Nr\xff\xff\xff\xffj\xfe\xff\xff\xff.",
    ] {
        assert!(matches!(error(bytes).kind, ErrorKind::MemoMissing(_)), "{bytes:?}");
    }
    assert!(read_slice(b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff.", &Limits::default()).is_ok());
}

#[test]
fn a_broken_stack_is_refused() {
    for bytes in [
        &b"0."[..],
        b".",
        b"2.",
        b"\x94.",
        b"Na.",
        b"}Ns.",
        b"(e.",
        b"(u.",
        b"}(\x94u.",
        b"N(\x85.",
    ] {
        assert!(
            matches!(
                error(bytes).kind,
                ErrorKind::StackUnderflow
                    | ErrorKind::WrongTarget { .. }
                    | ErrorKind::Truncated { .. }
            ),
            "{bytes:?}: {}",
            error(bytes)
        );
    }
    for bytes in [&b"u."[..], b"]e.", b"t.", b"d.", b"l.", b"1.", b"\x91.", b"\x8f\x90."] {
        assert!(matches!(error(bytes).kind, ErrorKind::NoMark), "{bytes:?}");
    }
    for bytes in [&b"](NNu."[..], b"}(Ne.", b"NNa.", b"NNNs.", b"](N\x90.", b")Na."] {
        assert!(matches!(error(bytes).kind, ErrorKind::WrongTarget { .. }), "{bytes:?}");
    }
    for bytes in [&b"}(Nu."[..], b"(Nd."] {
        assert!(matches!(error(bytes).kind, ErrorKind::OddItems), "{bytes:?}");
    }
}

#[test]
fn other_bytes_are_no_pickle() {
    assert!(matches!(error(b"").kind, ErrorKind::NotAPickle));
    assert!(matches!(error(b"hello").kind, ErrorKind::MemoMissing(_)));
    assert!(matches!(error(b"\xff\xfe").kind, ErrorKind::NotAPickle));
    assert!(matches!(error(b"N\xff").kind, ErrorKind::UnknownOpcode(0xff)));
    assert!(matches!(error(b"\x80\x06N.").kind, ErrorKind::Protocol(6)));
    assert!(matches!(error(b"\x80\x04N").kind, ErrorKind::Truncated { .. }));
    for bytes in
        [&b"\x8c\x01\xff."[..], b"Ione\n.", b"L1x\n.", b"Fx\n.", b"S'a\n.", b"V\\u12\n.", b"gx\n."]
    {
        assert!(matches!(error(bytes).kind, ErrorKind::BadText { .. }), "{bytes:?}");
    }
}

#[test]
fn an_error_of_the_stream_is_passed_on() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cable pulled"))
        }
    }
    let error = Reader::new(&Limits::default(), &mut NoSink)
        .read((&b"\x80\x04]"[..]).chain(Broken))
        .unwrap_err();
    assert_eq!(error.offset, 3);
    assert_eq!(error.to_string(), "at byte 3: reading failed: cable pulled");
}

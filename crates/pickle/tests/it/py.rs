//! Plain Python data, a small pickler for it, and the way back from what the reader gives.

use std::collections::HashMap;

use vramwise_pickle::{Document, Tables, Value, View};

/// Plain data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Py {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    List(Vec<Py>),
    Tuple(Vec<Py>),
    Dict(Vec<(Py, Py)>),
    Set(Vec<Py>),
    FrozenSet(Vec<Py>),
}

/// The pickle of `data` in a protocol. Equal strings are memoized, as picklers do with equal objects.
pub(crate) fn pickle(data: &Py, protocol: u8) -> Vec<u8> {
    let mut writer = Writer { protocol, out: Vec::new(), strings: HashMap::new(), memo: 0 };
    if protocol >= 2 {
        writer.out.extend([0x80, protocol]);
    }
    writer.write(data);
    writer.out.push(b'.');
    writer.out
}

struct Writer {
    protocol: u8,
    out: Vec<u8>,
    strings: HashMap<String, u32>,
    memo: u32,
}

impl Writer {
    fn line(&mut self, text: &str) {
        self.out.extend(text.bytes());
        self.out.push(b'\n');
    }

    fn memoize(&mut self) -> u32 {
        let index = self.memo;
        self.memo += 1;
        match self.protocol {
            0 => self.line(&format!("p{index}")),
            1..=3 => {
                self.out.push(b'r');
                self.out.extend(index.to_le_bytes());
            }
            _ => self.out.push(0x94),
        }
        index
    }

    fn get(&mut self, index: u32) {
        match (self.protocol, u8::try_from(index)) {
            (0, _) => self.line(&format!("g{index}")),
            (_, Ok(short)) => self.out.extend([b'h', short]),
            _ => {
                self.out.push(b'j');
                self.out.extend(index.to_le_bytes());
            }
        }
    }

    fn int(&mut self, i: i128) {
        if self.protocol == 0 {
            return match i32::try_from(i) {
                Ok(i) => self.line(&format!("I{i}")),
                Err(_) => self.line(&format!("L{i}L")),
            };
        }
        if let Ok(i) = u8::try_from(i) {
            self.out.extend([b'K', i]);
        } else if let Ok(i) = u16::try_from(i) {
            self.out.push(b'M');
            self.out.extend(i.to_le_bytes());
        } else if let Ok(i) = i32::try_from(i) {
            self.out.push(b'J');
            self.out.extend(i.to_le_bytes());
        } else if self.protocol == 1 {
            self.line(&format!("L{i}L"));
        } else if i % 3 == 0 {
            self.out.extend([0x8b, 16, 0, 0, 0]);
            self.out.extend(i.to_le_bytes());
        } else {
            self.out.extend([0x8a, 16]);
            self.out.extend(i.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(index) = self.strings.get(text) {
            return self.get(*index);
        }
        let n = text.len();
        if self.protocol == 0 {
            let mut line = String::from("V");
            for c in text.chars() {
                match c {
                    '\\' | '\n' | '\r' | '\0' | '\x1a' => line += &format!("\\u{:04x}", c as u32),
                    ' '..='~' => line.push(c),
                    c if (c as u32) < 0x1_0000 => line += &format!("\\u{:04x}", c as u32),
                    c => line += &format!("\\U{:08x}", c as u32),
                }
            }
            self.line(&line);
        } else if self.protocol >= 4 && n < 256 {
            self.out.extend([0x8c, n as u8]);
            self.out.extend(text.bytes());
        } else if self.protocol >= 4 && n.is_multiple_of(2) {
            self.out.push(0x8d);
            self.out.extend((n as u64).to_le_bytes());
            self.out.extend(text.bytes());
        } else {
            self.out.push(b'X');
            self.out.extend((n as u32).to_le_bytes());
            self.out.extend(text.bytes());
        }
        let index = self.memoize();
        self.strings.insert(text.to_owned(), index);
    }

    fn all(&mut self, items: &[Py]) {
        for item in items {
            self.write(item);
        }
    }

    fn write(&mut self, data: &Py) {
        let binary = self.protocol > 0;
        match data {
            Py::None => self.out.push(b'N'),
            Py::Bool(b) if self.protocol < 2 => self.line(if *b { "I01" } else { "I00" }),
            Py::Bool(b) => self.out.push(if *b { 0x88 } else { 0x89 }),
            Py::Int(i) => self.int(*i),
            Py::Float(x) if !binary => self.line(&format!("F{x:?}")),
            Py::Float(x) => {
                self.out.push(b'G');
                self.out.extend(x.to_be_bytes());
            }
            Py::Str(text) => self.text(text),
            Py::Bytes(bytes) => {
                match (self.protocol, u8::try_from(bytes.len())) {
                    (5, _) => {
                        self.out.push(0x96);
                        self.out.extend((bytes.len() as u64).to_le_bytes());
                    }
                    (_, Ok(n)) => self.out.extend([b'C', n]),
                    _ => {
                        self.out.push(b'B');
                        self.out.extend((bytes.len() as u32).to_le_bytes());
                    }
                }
                self.out.extend(bytes);
                self.memoize();
            }
            Py::List(items) if !binary => {
                self.out.extend(b"(l");
                self.memoize();
                for item in items {
                    self.write(item);
                    self.out.push(b'a');
                }
            }
            Py::List(items) => {
                self.out.push(b']');
                self.memoize();
                match items.as_slice() {
                    [] => {}
                    [item] => {
                        self.write(item);
                        self.out.push(b'a');
                    }
                    _ => {
                        for batch in items.chunks(1000) {
                            self.out.push(b'(');
                            self.all(batch);
                            self.out.push(b'e');
                        }
                    }
                }
            }
            Py::Dict(pairs) if !binary => {
                self.out.extend(b"(d");
                self.memoize();
                for (key, value) in pairs {
                    self.write(key);
                    self.write(value);
                    self.out.push(b's');
                }
            }
            Py::Dict(pairs) => {
                self.out.push(b'}');
                self.memoize();
                for batch in pairs.chunks(1000) {
                    self.out.push(b'(');
                    for (key, value) in batch {
                        self.write(key);
                        self.write(value);
                    }
                    self.out.push(b'u');
                }
            }
            Py::Tuple(items) => {
                match (items.len(), self.protocol) {
                    (0, 1..) => self.out.push(b')'),
                    (n @ 1..=3, 2..) => {
                        self.all(items);
                        self.out.push(0x84 + n as u8);
                    }
                    _ => {
                        self.out.push(b'(');
                        self.all(items);
                        self.out.push(b't');
                    }
                }
                self.memoize();
            }
            Py::Set(items) => {
                self.out.push(0x8f);
                self.memoize();
                self.out.push(b'(');
                self.all(items);
                self.out.push(0x90);
            }
            Py::FrozenSet(items) => {
                self.out.push(b'(');
                self.all(items);
                self.out.push(0x91);
                self.memoize();
            }
        }
    }
}

/// What the reader gives, as data. `external` says what a sink took over.
pub(crate) fn data_of(tables: &Tables, value: Value, external: &dyn Fn(u8, u32) -> Py) -> Py {
    let all = |items: &[Value]| -> Vec<Py> {
        items.iter().map(|v| data_of(tables, *v, external)).collect()
    };
    match tables.view(value) {
        View::None => Py::None,
        View::Bool(b) => Py::Bool(b),
        View::Int(i) => Py::Int(i),
        View::BigInt(bytes) => Py::Bytes(bytes.to_vec()),
        View::Float(x) => Py::Float(x),
        View::Str(text) => Py::Str(text.to_owned()),
        View::Bytes(bytes) => Py::Bytes(bytes.to_vec()),
        View::List(items) => Py::List(all(items)),
        View::Tuple(items) => Py::Tuple(all(items)),
        View::Set(items) => Py::Set(all(items)),
        View::FrozenSet(items) => Py::FrozenSet(all(items)),
        View::Dict(items) => {
            let pairs = all(items);
            Py::Dict(pairs.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect())
        }
        View::External(e) => external(e.kind, e.id),
    }
}

/// The data of a document that no sink took anything of.
pub(crate) fn data(document: &Document) -> Py {
    data_of(&document.tables, document.root, &|_, _| panic!("nothing was taken over"))
}

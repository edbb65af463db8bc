//! Snapshots as JSON: objects become rows the moment they are complete, as in pickles.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use vramwise_pickle::{Document, ErrorKind, Limits, Sink, Tables, Value};

use crate::rows::Rows;

/// A JSON text that was read.
pub(crate) struct JsonDocument {
    pub(crate) document: Document,
    /// What stopped reading, where the document is only a part.
    pub(crate) error: Option<serde_json::Error>,
    /// Whether something follows the first value.
    pub(crate) trailing: bool,
}

/// Reads one JSON value, as far as it goes.
pub(crate) fn read(stream: impl Read, rows: &mut Rows, limits: &Limits) -> JsonDocument {
    let stream = std::io::BufReader::with_capacity(64 << 10, stream);
    let mut source = serde_json::Deserializer::from_reader(stream);
    let mut builder = Builder { tables: Tables::new(limits), rows, partial: Value::NONE };
    let (root, error) = match Part(&mut builder).deserialize(&mut source) {
        Ok(root) => (root, None),
        Err(e) => (builder.partial, Some(e)),
    };
    let trailing = error.is_none() && source.end().is_err();
    let tables = builder.tables;
    let document = Document { root, tables, protocol: 0, bytes: 0, padding: 0, trailing: 0 };
    JsonDocument { document, error, trailing }
}

struct Builder<'r> {
    tables: Tables,
    rows: &'r mut Rows,
    /// After an error: the part of the innermost list or object that is complete, then of the one
    /// around it, and so on.
    partial: Value,
}

impl Builder<'_> {
    fn list(&mut self, items: Vec<Value>) -> Result<Value, ErrorKind> {
        match self.rows.list(&items, &self.tables) {
            Some(external) => Ok(Value::external(external)),
            None => self.tables.new_list(items),
        }
    }

    fn dict(&mut self, items: Vec<Value>) -> Result<Value, ErrorKind> {
        match self.rows.dict(&items, &self.tables) {
            Some(external) => Ok(Value::external(external)),
            None => self.tables.new_dict(items),
        }
    }

    /// Takes what an inner list or object left after an error, if that is where the error was.
    fn take_partial(&mut self) -> Option<Value> {
        Some(std::mem::replace(&mut self.partial, Value::NONE)).filter(|v| !v.is_none())
    }
}

/// Any value.
struct Part<'b, 'r>(&'b mut Builder<'r>);

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NONE)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::bool(b))
    }

    fn visit_i64<E: serde::de::Error>(self, i: i64) -> Result<Value, E> {
        self.0.tables.new_int(i.into()).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, i: u64) -> Result<Value, E> {
        self.0.tables.new_int(i.into()).map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<Value, E> {
        self.0.tables.new_float(x).map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.0.tables.new_str(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let mut items = Vec::new();
        loop {
            match list.next_element_seed(Part(builder)) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return builder.list(items).map_err(A::Error::custom),
                Err(e) => {
                    items.extend(builder.take_partial());
                    builder.partial = builder.list(items).unwrap_or(Value::NONE);
                    return Err(e);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let mut items = Vec::new();
        loop {
            let entry = match map.next_key_seed(Part(builder)) {
                Ok(Some(key)) => match map.next_value_seed(Part(builder)) {
                    Ok(value) => Ok([key, value]),
                    Err(e) => {
                        let partial = builder.take_partial();
                        items.extend(partial.into_iter().flat_map(|value| [key, value]));
                        Err(e)
                    }
                },
                Ok(None) => return builder.dict(items).map_err(A::Error::custom),
                Err(e) => Err(e),
            };
            match entry {
                Ok(pair) => items.extend(pair),
                Err(e) => {
                    builder.partial = builder.dict(items).unwrap_or(Value::NONE);
                    return Err(e);
                }
            }
        }
    }
}

//! Where the objects of a pickle are kept.

use crate::error::ErrorKind;
use crate::intern::{StrId, Strings};
use crate::limits::Limits;
use crate::value::{External, Tag, Value};

/// The objects of a pickle.
#[derive(Debug, Default)]
pub struct Tables {
    /// All strings, each once.
    pub strings: Strings,
    floats: Vec<f64>,
    blobs: Blobs,
    wide: Blobs,
    slots: Vec<Slot>,
    free: Vec<u32>,
    max_containers: u32,
}

/// A container: list, tuple, dictionary (key, value, key, value …) or set, as its handle says.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) items: Vec<Value>,
    /// The one memo entry that refers to it, [`Slot::NO_MEMO`] where none does.
    pub(crate) memo: u32,
    /// Whether anything beyond that memo entry and its one owner may refer to it.
    pub(crate) shared: bool,
    /// Whether a sink has looked inside, so that it must not change any more.
    pub(crate) frozen: bool,
}

impl Slot {
    pub(crate) const NO_MEMO: u32 = u32::MAX;
}

/// Byte strings one behind the other.
#[derive(Debug, Default)]
struct Blobs {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Blobs {
    fn push(&mut self, bytes: &[u8]) -> Result<u32, ErrorKind> {
        let id = u32::try_from(self.ends.len())
            .map_err(|_| ErrorKind::Limit { what: "byte strings", limit: 1 << 32 })?;
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u64);
        Ok(id)
    }

    fn get(&self, id: u32) -> &[u8] {
        let i = id as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..self.ends[i] as usize]
    }
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View<'a> {
    /// `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer that fits 128 bits.
    Int(i128),
    /// A larger integer: two's complement, lowest byte first.
    BigInt(&'a [u8]),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list.
    List(&'a [Value]),
    /// A tuple.
    Tuple(&'a [Value]),
    /// A dictionary: key, value, key, value … in the file's order. A key may occur again; the last
    /// one counts.
    Dict(&'a [Value]),
    /// A set, in the file's order.
    Set(&'a [Value]),
    /// A frozen set, in the file's order.
    FrozenSet(&'a [Value]),
    /// Something that the sink took over.
    External(External),
}

impl View<'_> {
    /// Python's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            View::None => "None",
            View::Bool(_) => "bool",
            View::Int(_) | View::BigInt(_) => "int",
            View::Float(_) => "float",
            View::Str(_) => "str",
            View::Bytes(_) => "bytes",
            View::List(_) => "list",
            View::Tuple(_) => "tuple",
            View::Dict(_) | View::External(_) => "dict",
            View::Set(_) => "set",
            View::FrozenSet(_) => "frozenset",
        }
    }
}

impl Tables {
    /// Empty tables.
    pub fn new(limits: &Limits) -> Self {
        Self { max_containers: limits.containers, ..Self::default() }
    }

    /// What a handle of these tables stands for.
    pub fn view(&self, value: Value) -> View<'_> {
        let items = || self.slot(value.index()).items.as_slice();
        match value.tag() {
            Tag::Constant => match value.as_bool() {
                Some(b) => View::Bool(b),
                None => View::None,
            },
            Tag::Int => View::Int(value.as_small_int().unwrap_or(0).into()),
            Tag::Wide => {
                let bytes = self.wide.get(value.index());
                wide_int(bytes).map_or(View::BigInt(bytes), View::Int)
            }
            Tag::Float => View::Float(self.floats[value.index() as usize]),
            Tag::Str => View::Str(self.strings.get(StrId(value.index()))),
            Tag::Bytes => View::Bytes(self.blobs.get(value.index())),
            Tag::List => View::List(items()),
            Tag::Tuple => View::Tuple(items()),
            Tag::Dict => View::Dict(items()),
            Tag::Set => View::Set(items()),
            Tag::FrozenSet => View::FrozenSet(items()),
            Tag::External => View::External(
                value.as_external().unwrap_or(External { kind: 0, id: value.index() }),
            ),
        }
    }

    /// The integer, if it is one and fits.
    #[inline]
    pub fn int(&self, value: Value) -> Option<i128> {
        if let Some(i) = value.as_small_int() {
            return Some(i.into());
        }
        match value.tag() {
            Tag::Wide => wide_int(self.wide.get(value.index())),
            _ => None,
        }
    }

    /// The text, if it is a string.
    pub fn str(&self, value: Value) -> Option<&str> {
        value.as_str_id().map(|id| self.strings.get(id))
    }

    /// The items, if it is a list or a tuple.
    pub fn sequence(&self, value: Value) -> Option<&[Value]> {
        match self.view(value) {
            View::List(items) | View::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// Key and value pairs, if it is a dictionary.
    pub fn pairs(&self, value: Value) -> Option<impl DoubleEndedIterator<Item = (Value, Value)>> {
        match self.view(value) {
            View::Dict(items) => Some(items.as_chunks::<2>().0.iter().map(|[k, v]| (*k, *v))),
            _ => None,
        }
    }

    /// The value of a text key, if it is a dictionary that has it.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        let id = self.strings.find(key)?;
        let mut pairs = self.pairs(dict)?;
        pairs.rfind(|(k, _)| k.as_str_id() == Some(id)).map(|(_, v)| v)
    }

    /// Gives up the items of a container, to save memory once they were used.
    pub fn release(&mut self, value: Value) {
        if value.is_container() {
            self.slot_mut(value.index()).items = Vec::new();
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// When there are 2^32 integers of more than 60 bits already; likewise for the other constructors.
    pub fn new_int(&mut self, i: i128) -> Result<Value, ErrorKind> {
        match i64::try_from(i).ok().and_then(Value::small) {
            Some(v) => Ok(v),
            None => self.new_wide(&i.to_le_bytes()),
        }
    }

    /// An integer of any length: two's complement, lowest byte first.
    ///
    /// # Errors
    /// See [`Tables::new_int`].
    pub fn new_wide(&mut self, bytes: &[u8]) -> Result<Value, ErrorKind> {
        if bytes.len() <= 16
            && let Some(small) = wide_int(bytes).and_then(|i| i64::try_from(i).ok())
            && let Some(v) = Value::small(small)
        {
            return Ok(v);
        }
        Ok(Value::new(Tag::Wide, self.wide.push(bytes)?))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// See [`Tables::new_int`].
    pub fn new_float(&mut self, x: f64) -> Result<Value, ErrorKind> {
        let id = u32::try_from(self.floats.len())
            .map_err(|_| ErrorKind::Limit { what: "floating-point numbers", limit: 1 << 32 })?;
        self.floats.push(x);
        Ok(Value::new(Tag::Float, id))
    }

    /// A string.
    ///
    /// # Errors
    /// See [`Tables::new_int`].
    pub fn new_str(&mut self, text: &str) -> Result<Value, ErrorKind> {
        self.strings
            .intern(text)
            .map(Value::str)
            .ok_or(ErrorKind::Limit { what: "distinct strings", limit: u64::from(u32::MAX) })
    }

    /// A byte string.
    ///
    /// # Errors
    /// See [`Tables::new_int`].
    pub fn new_bytes(&mut self, bytes: &[u8]) -> Result<Value, ErrorKind> {
        Ok(Value::new(Tag::Bytes, self.blobs.push(bytes)?))
    }

    /// A list.
    ///
    /// # Errors
    /// When there are more containers than the limits allow.
    pub fn new_list(&mut self, items: Vec<Value>) -> Result<Value, ErrorKind> {
        self.new_container(Tag::List, items)
    }

    /// A dictionary from key, value, key, value …
    ///
    /// # Errors
    /// See [`Tables::new_list`].
    pub fn new_dict(&mut self, items: Vec<Value>) -> Result<Value, ErrorKind> {
        self.new_container(Tag::Dict, items)
    }

    #[inline]
    pub(crate) fn new_container(
        &mut self,
        tag: Tag,
        items: Vec<Value>,
    ) -> Result<Value, ErrorKind> {
        let slot = Slot { items, memo: Slot::NO_MEMO, shared: false, frozen: false };
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            return Ok(Value::new(tag, id));
        }
        let id = self.slots.len() as u32;
        if id >= self.max_containers {
            return Err(ErrorKind::Limit {
                what: "lists, dictionaries, tuples and sets",
                limit: self.max_containers.into(),
            });
        }
        self.slots.push(slot);
        Ok(Value::new(tag, id))
    }

    #[inline]
    pub(crate) fn slot(&self, id: u32) -> &Slot {
        &self.slots[id as usize]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, id: u32) -> &mut Slot {
        &mut self.slots[id as usize]
    }

    /// Frees the place of a container that nothing refers to any more.
    #[inline]
    pub(crate) fn recycle(&mut self, id: u32) {
        self.free.push(id);
    }
}

/// A two's complement integer of up to 16 significant bytes.
fn wide_int(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [fill; 16];
    let n = bytes.len().min(16);
    all[..n].copy_from_slice(&bytes[..n]);
    let negative = all[15] & 0x80 != 0;
    let redundant = bytes[n..].iter().all(|b| *b == fill) && negative == (fill == 0xff);
    redundant.then(|| i128::from_le_bytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_come_back() {
        let mut tables = Tables::new(&Limits::default());
        for i in [0, -1, 1 << 59, -(1 << 59) - 1, i128::from(u64::MAX), i128::MIN, i128::MAX] {
            let v = tables.new_int(i).unwrap();
            assert_eq!(tables.int(v), Some(i), "{i}");
        }
        let v = tables.new_wide(&[0xff; 40]).unwrap();
        assert_eq!(tables.int(v), Some(-1));
        let mut large = [0; 17];
        large[16] = 1;
        let v = tables.new_wide(&large).unwrap();
        assert_eq!(tables.view(v), View::BigInt(&large));
        assert_eq!(tables.new_wide(&[]).unwrap().as_small_int(), Some(0));
        assert_eq!(tables.new_wide(&[0xff; 20]).map(|v| tables.int(v)).unwrap(), Some(-1));
        let mut high = [0; 17];
        high[15] = 0x80;
        let v = tables.new_wide(&high).unwrap();
        assert_eq!(tables.view(v), View::BigInt(&high));
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let mut tables = Tables::new(&Limits::default());
        let k = tables.new_str("k").unwrap();
        let dict = tables.new_dict(vec![k, Value::TRUE, k, Value::FALSE]).unwrap();
        assert_eq!(tables.get(dict, "k"), Some(Value::FALSE));
        assert_eq!(tables.get(dict, "other"), None);
        assert_eq!(tables.get(Value::NONE, "k"), None);
    }
}

//! Handles of objects.

use crate::intern::StrId;

/// An object of a pickle: eight bytes, either the object itself (`None`, booleans, integers of up to 60
/// bits) or its place in [`crate::Tables`]. Equal handles are the same object; different handles may
/// still be equal objects, except for strings, which are kept once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(u64);

/// An object that a [`crate::Sink`] took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct External {
    /// What kind of object, in the sink's own numbering from 0 to [`External::LAST_KIND`].
    pub kind: u8,
    /// Which one.
    pub id: u32,
}

impl External {
    /// The largest kind; a handle has room for three bits.
    pub const LAST_KIND: u8 = 7;
}

/// Kind of a handle, in its low four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// `None`, `False`, `True`; nothing at all in a memo.
    Constant = 0,
    /// A small integer.
    Int,
    /// An integer in the table of wide integers.
    Wide,
    Float,
    Str,
    Bytes,
    List,
    Tuple,
    Dict,
    Set,
    FrozenSet,
    External,
}

const TAGS: [Tag; 16] = [
    Tag::Constant,
    Tag::Int,
    Tag::Wide,
    Tag::Float,
    Tag::Str,
    Tag::Bytes,
    Tag::List,
    Tag::Tuple,
    Tag::Dict,
    Tag::Set,
    Tag::FrozenSet,
    Tag::External,
    Tag::Constant,
    Tag::Constant,
    Tag::Constant,
    Tag::Constant,
];

impl From<i32> for Value {
    #[inline]
    fn from(i: i32) -> Self {
        Value(((i64::from(i) << BITS) as u64) | Tag::Int as u64)
    }
}

/// Bits of the tag.
const BITS: u32 = 4;
/// Bits below the index of a handle that has one: the tag, and the kind of an external object.
const SHIFT: u32 = 7;
const SMALL: i64 = 1 << 59;

impl Value {
    /// `None`.
    pub const NONE: Value = Value(0);
    /// `False`.
    pub const FALSE: Value = Value(1 << BITS);
    /// `True`.
    pub const TRUE: Value = Value(2 << BITS);
    /// A memo entry that was never stored.
    pub(crate) const ABSENT: Value = Value(3 << BITS);

    pub(crate) const fn new(tag: Tag, index: u32) -> Self {
        Value(((index as u64) << SHIFT) | tag as u64)
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        TAGS[(self.0 & 15) as usize]
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        (self.0 >> SHIFT) as u32
    }

    /// A boolean.
    pub fn bool(b: bool) -> Self {
        if b { Self::TRUE } else { Self::FALSE }
    }

    /// An integer that fits the handle.
    #[inline]
    pub(crate) fn small(i: i64) -> Option<Self> {
        (-SMALL..SMALL).contains(&i).then_some(Value(((i << BITS) as u64) | Tag::Int as u64))
    }

    /// The integer in the handle; `None` for anything else, also for integers that need more room
    /// (use [`crate::Tables::int`]).
    #[inline]
    pub fn as_small_int(self) -> Option<i64> {
        (self.0 & 15 == Tag::Int as u64).then_some(self.0 as i64 >> BITS)
    }

    /// A string by its id.
    #[inline]
    pub fn str(id: StrId) -> Self {
        Self::new(Tag::Str, id.0)
    }

    /// The id, if this is a string.
    #[inline]
    pub fn as_str_id(self) -> Option<StrId> {
        (self.0 & 15 == Tag::Str as u64).then(|| StrId(self.index()))
    }

    /// An object that a sink took over.
    #[inline]
    pub fn external(e: External) -> Self {
        let kind = u64::from(e.kind & External::LAST_KIND);
        Value((u64::from(e.id) << SHIFT) | (kind << BITS) | Tag::External as u64)
    }

    /// The object that a sink took over, if this is one.
    #[inline]
    pub fn as_external(self) -> Option<External> {
        (self.0 & 15 == Tag::External as u64).then(|| External {
            kind: (self.0 >> BITS) as u8 & External::LAST_KIND,
            id: self.index(),
        })
    }

    /// `True` or `False`, if this is one.
    pub fn as_bool(self) -> Option<bool> {
        match self {
            Self::TRUE => Some(true),
            Self::FALSE => Some(false),
            _ => None,
        }
    }

    /// The handle in four bytes, if nothing is lost.
    #[inline]
    pub(crate) fn narrowed(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }

    /// The handle that was [`Value::narrowed`].
    #[inline]
    pub(crate) fn widened(narrow: u32) -> Self {
        Value(narrow.into())
    }

    /// Whether a [`Value::narrowed`] handle is of anything but a container or a constant.
    #[inline(always)]
    pub(crate) fn is_plain(narrow: u32) -> bool {
        const PLAIN: u32 = (1 << Tag::Int as u32)
            | (1 << Tag::Wide as u32)
            | (1 << Tag::Float as u32)
            | (1 << Tag::Str as u32)
            | (1 << Tag::Bytes as u32)
            | (1 << Tag::External as u32);
        (PLAIN >> (narrow & 15)) & 1 != 0
    }

    /// Whether this is `None`.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether this is a place in the table of containers.
    #[inline]
    pub(crate) fn is_container(self) -> bool {
        (Tag::List as u64..=Tag::FrozenSet as u64).contains(&(self.0 & 15))
    }

    /// A number that identifies a list, dictionary, tuple or set within its tables.
    pub fn container_id(self) -> Option<u32> {
        self.is_container().then(|| self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_in_four_bytes_are_the_same_handles() {
        let external = |kind, id| Value::external(External { kind, id });
        for v in [Value::NONE, Value::TRUE, Value::ABSENT, Value::str(StrId(9)), Value::from(3)] {
            assert_eq!(v.narrowed().map(Value::widened), Some(v));
        }
        for (kind, id, fits) in [(7, (1 << 25) - 1, true), (0, 1 << 25, false)] {
            let v = external(kind, id);
            assert_eq!(v.narrowed().map(Value::widened), fits.then_some(v));
        }
        assert_eq!(Value::from(-1).narrowed(), None);
    }

    #[test]
    fn a_handle_is_eight_bytes_and_gives_back_what_went_in() {
        assert_eq!(size_of::<Value>(), 8);
        for i in [0, 1, -1, SMALL - 1, -SMALL, 140_548_476_239_872] {
            assert_eq!(Value::small(i).and_then(Value::as_small_int), Some(i));
        }
        assert_eq!(Value::small(SMALL), None);
        assert_eq!(Value::small(i64::MIN), None);
        let e = External { kind: 7, id: u32::MAX };
        assert_eq!(Value::external(e).as_external(), Some(e));
        assert_eq!(Value::NONE.as_small_int(), None);
        assert_ne!(Value::ABSENT, Value::NONE);
    }
}

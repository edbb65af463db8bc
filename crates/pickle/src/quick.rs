//! The fast way: the commonest instructions, and literals that hold nothing else, without the stack.

use crate::intern::StrId;
use crate::machine::{Checked, Machine};
use crate::ops;
use crate::sink::Sink;
use crate::tables::Slot;
use crate::value::{Tag, Value};

/// Items that a literal may have to be read in one go; fewer than a batch.
pub(crate) const ITEMS: usize = 256;

/// Bytes that are looked at together: the longest of the common instructions and some more.
pub(crate) const HEAD: usize = 12;

impl<S: Sink> Machine<'_, S> {
    /// The value that the instruction at the start of `head` pushes, and its length, for the commonest
    /// instructions in their commonest forms. `None` for everything else, which [`Self::step`] does.
    /// The value is never a container.
    #[inline(always)]
    pub(crate) fn quick(&self, head: &[u8; HEAD]) -> Option<(Value, usize)> {
        let (value, n) = match head[0] {
            ops::BINGET => (self.memo.get_plain(head[1].into())?, 2),
            ops::LONG_BINGET => {
                let index = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
                (self.memo.get_plain(index)?, 5)
            }
            ops::LONG1 => {
                let n = head[1];
                if !(1..=7).contains(&n) {
                    return None;
                }
                let (shift, word) = (64 - 8 * u32::from(n), word_at(head, 2));
                (Value::small(((word << shift) as i64) >> shift)?, 2 + usize::from(n))
            }
            ops::BININT => {
                let i = i32::from_le_bytes([head[1], head[2], head[3], head[4]]);
                (Value::from(i), 5)
            }
            ops::BININT1 => (Value::from(i32::from(head[1])), 2),
            ops::BININT2 => (Value::from(i32::from(u16::from_le_bytes([head[1], head[2]]))), 3),
            ops::SHORT_BINUNICODE => {
                let n = usize::from(head[1]);
                let word = word_at(head, 2) & LOW_BYTES.get(n)?;
                (self.short.find(word, n)?, 2 + n)
            }
            _ => return None,
        };
        Some((value, n))
    }

    /// Carries out `EMPTY_DICT` or `EMPTY_LIST`, and with it as much as possible of a whole literal:
    /// the mark, items without parts, and the instruction that puts them in. Almost everything in a
    /// history has this form. The container itself is only made if it turns out not to be complete at
    /// once, or if the sink does not want it.
    #[inline(always)]
    pub(crate) fn literal(&mut self, tag: Tag, w: &[u8], pos: usize) -> Checked<usize> {
        let (memoized, mut pos) = match w.get(pos + 1..) {
            Some([ops::MEMOIZE, ops::MARK, ..]) => (true, pos + 3),
            Some([ops::MARK, ..]) => (false, pos + 2),
            _ => {
                self.push_container(tag, Vec::new())?;
                return Ok(pos + 1);
            }
        };
        let memo = match memoized {
            true => {
                let index = self.memo.count();
                self.room_in_memo()?;
                self.memo.put(index, Value::ABSENT);
                u32::try_from(index).unwrap_or(Slot::NO_MEMO)
            }
            false => Slot::NO_MEMO,
        };
        let end = if tag == Tag::Dict { ops::SETITEMS } else { ops::APPENDS };
        let mut n = 0;
        // Whatever cannot be done here is left to the ordinary way, which also reports the faults.
        while let Some(head) = w[pos..].first_chunk() {
            if let Some((value, length)) = self.quick(head) {
                let Some(place) = self.items.get_mut(n) else { break };
                *place = value;
                n += 1;
                pos += length;
            } else if head[0] == ops::MEMOIZE && n > 0 && self.room_in_memo().is_ok() {
                self.memo.put(self.memo.count(), self.items[n - 1]);
                pos += 1;
            } else if head[0] == end {
                let Some(external) = self.taken_over(tag, n) else { break };
                if memo != Slot::NO_MEMO {
                    self.memo.replace(memo, Value::ABSENT, external);
                }
                self.push(external)?;
                return Ok(pos + 1);
            } else {
                break;
            }
        }
        let container = self.tables.new_container(tag, Vec::new())?;
        if memo != Slot::NO_MEMO {
            self.memo.replace(memo, Value::ABSENT, container);
            self.tables.slot_mut(container.index()).memo = memo;
        }
        self.push(container)?;
        self.mark()?;
        for i in 0..n {
            self.push(self.items[i])?;
        }
        Ok(pos)
    }

    /// What the sink makes of the first `n` of the items, if it takes them over. There is no need to
    /// freeze anything: no item is a container.
    #[inline(always)]
    fn taken_over(&mut self, tag: Tag, n: usize) -> Option<Value> {
        let items = self.items.get(..n)?;
        let external = match tag {
            Tag::Dict if n.is_multiple_of(2) => self.sink.dict(items, &self.tables),
            Tag::List => self.sink.list(items, &self.tables),
            _ => None,
        };
        external.map(Value::external)
    }
}

/// Recently seen strings of up to eight bytes, so that a text that occurs in every entry costs no look
/// into the table.
pub(crate) struct ShortStrings([(u64, usize, StrId); 64]);

/// Eight bytes as a word.
#[inline(always)]
fn word_at(head: &[u8; HEAD], at: usize) -> u64 {
    head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The lowest `n` bytes of a word.
const LOW_BYTES: [u64; 9] = {
    let mut masks = [u64::MAX; 9];
    let mut n = 0;
    while n < 8 {
        masks[n] = (1 << (8 * n)) - 1;
        n += 1;
    }
    masks
};

impl Default for ShortStrings {
    fn default() -> Self {
        Self([(0, usize::MAX, StrId(0)); 64])
    }
}

impl ShortStrings {
    #[inline]
    fn place(word: u64, n: usize) -> usize {
        ((word ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }

    /// The string whose `n` bytes are those of `word`.
    #[inline]
    pub(crate) fn find(&self, word: u64, n: usize) -> Option<Value> {
        let entry = &self.0[Self::place(word, n)];
        (entry.0 == word && entry.1 == n).then(|| Value::str(entry.2))
    }

    /// Remembers a string that was entered.
    pub(crate) fn remember(&mut self, bytes: &[u8], value: Value) {
        if let (Some(id), ..=8) = (value.as_str_id(), bytes.len()) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            self.0[Self::place(word, bytes.len())] = (word, bytes.len(), id);
        }
    }
}

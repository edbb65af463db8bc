//! The stack machine: its state, and the instructions that fill a snapshot. The others are in
//! [`crate::rare`].

use crate::error::{Error, ErrorKind};
use crate::intern::StrId;
use crate::limits::Limits;
use crate::memo::Memo;
use crate::ops;
use crate::sink::Sink;
use crate::tables::{Slot, Tables};
use crate::text;
use crate::value::{Tag, Value};

/// Picklers fill large containers in batches of this many items; one that receives so many at once may
/// receive more, so it is never handed to a sink.
const BATCH: usize = 1000;

/// Items that a literal may have to be read in one go; fewer than [`BATCH`].
const ITEMS: usize = 256;

/// Bytes that are looked at together: the longest of the common instructions and some more.
const HEAD: usize = 12;

/// Where a run ended well.
pub(crate) enum Outcome {
    /// The instruction at the position needs this many bytes from its start.
    More(u64),
    /// The pickle is complete.
    Done(Value),
}

/// Why no instruction follows.
pub(crate) enum Halt {
    /// The pickle is complete.
    Done(Value),
    /// The instruction needs this many bytes from its start.
    More(u64),
    /// The instruction cannot be carried out. (In a box, so that the answers of all the small steps fit registers.)
    Fault(Box<ErrorKind>),
}

impl From<ErrorKind> for Halt {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        Halt::Fault(Box::new(kind))
    }
}

pub(crate) type Checked<T> = Result<T, Halt>;

#[cold]
pub(crate) fn fault<T>(kind: ErrorKind) -> Checked<T> {
    Err(kind.into())
}

/// The `n` bytes from `at` bytes after the instruction on.
#[inline]
pub(crate) fn take(w: &[u8], pos: usize, at: usize, n: usize) -> Checked<&[u8]> {
    let bytes = w.get(pos + at..).and_then(|w| w.get(..n));
    bytes.ok_or(Halt::More((at as u64).saturating_add(n as u64)))
}

/// The argument of `N` bytes right after the instruction.
#[inline]
pub(crate) fn array<const N: usize>(w: &[u8], pos: usize) -> Checked<[u8; N]> {
    let bytes = w.get(pos + 1..).and_then(<[u8]>::first_chunk);
    bytes.copied().ok_or(Halt::More(1 + N as u64))
}

pub(crate) struct Machine<'s, S> {
    pub(crate) tables: Tables,
    pub(crate) protocol: u8,
    pub(crate) limits: Limits,
    pub(crate) stack: Vec<Value>,
    pub(crate) marks: Vec<usize>,
    sink: &'s mut S,
    /// Where the values above the last mark begin; nothing below it can be popped.
    fence: usize,
    memo: Memo,
    short: ShortStrings,
    /// Items of the literal at hand.
    items: Box<[Value; ITEMS]>,
}

impl<'s, S: Sink> Machine<'s, S> {
    pub(crate) fn new(limits: &Limits, sink: &'s mut S) -> Self {
        Self {
            tables: Tables::new(limits),
            protocol: 0,
            limits: limits.clone(),
            stack: Vec::new(),
            marks: Vec::new(),
            sink,
            fence: 0,
            memo: Memo::default(),
            short: ShortStrings::default(),
            items: Box::new([Value::NONE; ITEMS]),
        }
    }

    /// Hands out the tables and forgets everything that refers to them.
    pub(crate) fn reset(&mut self) -> Tables {
        self.protocol = 0;
        self.stack = Vec::new();
        self.marks = Vec::new();
        self.fence = 0;
        self.memo = Memo::default();
        self.short = ShortStrings::default();
        std::mem::replace(&mut self.tables, Tables::new(&self.limits))
    }

    /// Runs until the pickle is complete or `w` does not hold the whole next instruction. `position` is
    /// moved to the instruction that is next, or at fault; `base` is the offset of `w` in the input.
    pub(crate) fn run(
        &mut self,
        w: &[u8],
        base: u64,
        position: &mut usize,
    ) -> Result<Outcome, Error> {
        let mut pos = *position;
        let halt = loop {
            match self.step(w, base, pos) {
                Ok(next) => pos = next,
                Err(halt) => break halt,
            }
        };
        *position = pos;
        match halt {
            Halt::Done(root) => Ok(Outcome::Done(root)),
            Halt::More(n) => Ok(Outcome::More(n)),
            Halt::Fault(kind) => Err(Error { offset: base + pos as u64, kind: *kind }),
        }
    }

    /// Carries out the instruction at `pos`; the answer is where the next one begins.
    #[inline(always)]
    fn step(&mut self, w: &[u8], base: u64, pos: usize) -> Checked<usize> {
        let Some(&op) = w.get(pos) else {
            return Err(Halt::More(1));
        };
        if let Some(head) = w[pos..].first_chunk()
            && let Some((value, n)) = self.quick(head)
        {
            self.push(value)?;
            return Ok(pos + n);
        }
        match op {
            ops::BINGET => {
                let [i] = array(w, pos)?;
                self.get(i.into())?;
                Ok(pos + 2)
            }
            ops::LONG_BINGET => {
                let i = u32::from_le_bytes(array(w, pos)?);
                self.get(i.into())?;
                Ok(pos + 5)
            }
            ops::LONG1 => {
                let [n] = array(w, pos)?;
                let n = usize::from(n);
                let value = match w.get(pos + 2..).and_then(<[u8]>::first_chunk::<8>) {
                    Some(word) if (1..=7).contains(&n) => {
                        let shift = 64 - 8 * n as u32;
                        let i = ((u64::from_le_bytes(*word) << shift) as i64) >> shift;
                        match Value::small(i) {
                            Some(value) => value,
                            None => self.tables.new_int(i.into())?,
                        }
                    }
                    _ => self.tables.new_wide(take(w, pos, 2, n)?)?,
                };
                self.push(value)?;
                Ok(pos + 2 + n)
            }
            ops::BININT => {
                let i = i32::from_le_bytes(array(w, pos)?);
                self.push(Value::from(i))?;
                Ok(pos + 5)
            }
            ops::BININT1 => {
                let [i] = array(w, pos)?;
                self.push(Value::from(i32::from(i)))?;
                Ok(pos + 2)
            }
            ops::BININT2 => {
                let i = u16::from_le_bytes(array(w, pos)?);
                self.push(Value::from(i32::from(i)))?;
                Ok(pos + 3)
            }
            ops::MEMOIZE => {
                let index = self.memo.count();
                self.put(index)?;
                Ok(pos + 1)
            }
            ops::SHORT_BINUNICODE => {
                let [n] = array(w, pos)?;
                let n = usize::from(n);
                let bytes = take(w, pos, 2, n)?;
                let value = enter(bytes, &mut self.tables)?;
                self.short.remember(bytes, value);
                self.push(value)?;
                Ok(pos + 2 + n)
            }
            ops::MARK => {
                self.mark()?;
                Ok(pos + 1)
            }
            ops::EMPTY_DICT => self.literal(Tag::Dict, w, pos),
            ops::SETITEMS => {
                self.set_items()?;
                Ok(pos + 1)
            }
            ops::EMPTY_LIST => self.literal(Tag::List, w, pos),
            ops::APPENDS => {
                self.append_items()?;
                Ok(pos + 1)
            }
            ops::FRAME => {
                // The frame's length only helps readers that want to fetch ahead.
                array::<8>(w, pos)?;
                Ok(pos + 9)
            }
            _ => self.rare(op, w, base, pos),
        }
    }

    /// The value that the instruction at the start of `head` pushes, and its length, for the commonest
    /// instructions in their commonest forms. `None` for everything else, which [`Self::step`] does.
    /// The value is never a container.
    #[inline(always)]
    fn quick(&self, head: &[u8; HEAD]) -> Option<(Value, usize)> {
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
    fn literal(&mut self, tag: Tag, w: &[u8], pos: usize) -> Checked<usize> {
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

    #[inline]
    pub(crate) fn push(&mut self, value: Value) -> Checked<()> {
        if self.stack.len() == self.stack.capacity() {
            self.grow_stack()?;
        }
        self.stack.push(value);
        Ok(())
    }

    #[cold]
    fn grow_stack(&mut self) -> Checked<()> {
        let limit = self.limits.stack;
        if self.stack.len() >= limit {
            return fault(ErrorKind::Limit { what: "values at one time", limit: limit as u64 });
        }
        self.stack
            .reserve((self.stack.len().min(limit - self.stack.len())).clamp(1, limit).max(64));
        Ok(())
    }

    pub(crate) fn push_container(&mut self, tag: Tag, items: Vec<Value>) -> Checked<()> {
        let value = self.tables.new_container(tag, items)?;
        self.push(value)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Checked<Value> {
        if self.stack.len() <= self.fence {
            return fault(ErrorKind::StackUnderflow);
        }
        match self.stack.pop() {
            Some(value) => Ok(value),
            None => fault(ErrorKind::StackUnderflow),
        }
    }

    #[inline]
    pub(crate) fn top(&self) -> Checked<Value> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.fence => Ok(*value),
            _ => fault(ErrorKind::StackUnderflow),
        }
    }

    pub(crate) fn mark(&mut self) -> Checked<()> {
        let start = self.stack.len();
        if self.marks.len() >= self.limits.depth {
            let limit = self.limits.depth as u64;
            return fault(ErrorKind::Limit { what: "levels of nesting", limit });
        }
        self.marks.push(start);
        self.fence = start;
        Ok(())
    }

    /// Closes the last mark; the values above it begin where the answer says.
    #[inline]
    pub(crate) fn pop_mark(&mut self) -> Checked<usize> {
        let Some(start) = self.marks.pop() else {
            return fault(ErrorKind::NoMark);
        };
        self.fence = self.marks.last().copied().unwrap_or(0);
        Ok(start)
    }

    /// Closes the last mark and takes the values above it.
    pub(crate) fn pop_marked(&mut self) -> Checked<Vec<Value>> {
        let start = self.pop_mark()?;
        Ok(self.stack.drain(start..).collect())
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u64) -> Checked<()> {
        let Some(value) = self.memo.get(index) else {
            return fault(ErrorKind::MemoMissing(index));
        };
        self.share(value);
        self.push(value)
    }

    /// Notes that something else refers to a container from now on.
    #[inline]
    pub(crate) fn share(&mut self, value: Value) {
        if value.is_container() {
            self.tables.slot_mut(value.index()).shared = true;
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, index: u64) -> Checked<()> {
        let top = self.top()?;
        self.room_in_memo()?;
        if top.is_container() {
            let slot = self.tables.slot_mut(top.index());
            match u32::try_from(index) {
                Ok(i) if slot.memo == Slot::NO_MEMO && i != Slot::NO_MEMO => slot.memo = i,
                _ => slot.shared = true,
            }
        }
        self.memo.put(index, top);
        Ok(())
    }

    #[inline]
    fn room_in_memo(&self) -> Checked<()> {
        if self.memo.count() < u64::from(self.limits.memo) {
            return Ok(());
        }
        fault(ErrorKind::Limit { what: "memo entries", limit: self.limits.memo.into() })
    }

    /// The container below the last mark and where the marked values begin; the mark is closed.
    #[inline]
    fn marked_target(&mut self) -> Checked<(Value, usize)> {
        let start = self.pop_mark()?;
        if start <= self.fence {
            return fault(ErrorKind::StackUnderflow);
        }
        Ok((self.stack[start - 1], start))
    }

    /// `SETITEMS`, `DICT`'s sibling: everything above the mark into the dictionary below it.
    fn set_items(&mut self) -> Checked<()> {
        let (target, start) = self.marked_target()?;
        self.set_items_from(target, start)
    }

    /// Everything from `start` on into the dictionary right below.
    fn set_items_from(&mut self, target: Value, start: usize) -> Checked<()> {
        let items = &self.stack[start..];
        if !items.len().is_multiple_of(2) {
            return fault(ErrorKind::OddItems);
        }
        let slot = open_slot(&mut self.tables, target, Tag::Dict)?;
        if slot.items.is_empty()
            && !slot.shared
            && items.len() < 2 * BATCH
            && let Some(external) = self.sink.dict(items, &self.tables)
        {
            freeze(&mut self.tables, items);
            self.hand_over(target, Value::external(external), start);
            return Ok(());
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
    }

    /// `APPENDS`: everything above the mark to the end of the list below it (`ADDITEMS` for sets).
    pub(crate) fn append_items(&mut self) -> Checked<()> {
        let (target, start) = self.marked_target()?;
        self.append_from(target, start)
    }

    /// Appends everything from `start` on to the list right below.
    pub(crate) fn append_from(&mut self, target: Value, start: usize) -> Checked<()> {
        let items = &self.stack[start..];
        if let Some(external) = target.as_external() {
            if !self.sink.append(external, items, &self.tables) {
                return fault(ErrorKind::ChangedAfterUse);
            }
            freeze(&mut self.tables, items);
            self.stack.truncate(start);
            return Ok(());
        }
        let slot = open_slot(&mut self.tables, target, Tag::List)?;
        if slot.items.is_empty()
            && !slot.shared
            && let Some(external) = self.sink.list(items, &self.tables)
        {
            freeze(&mut self.tables, items);
            self.hand_over(target, Value::external(external), start);
            return Ok(());
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
    }

    /// A value that is about to become part of another, in protocol 0, which fills containers item by
    /// item: one is complete when it is put somewhere. The answer is what the sink made of it, or the
    /// value itself.
    pub(crate) fn settled(&mut self, value: Value) -> Value {
        if self.protocol >= 2 || !value.is_container() {
            return value;
        }
        let slot = self.tables.slot(value.index());
        if slot.shared || slot.frozen || slot.items.is_empty() {
            return value;
        }
        let taken = match value.tag() {
            Tag::Dict if slot.items.len() < 2 * BATCH => self.sink.dict(&slot.items, &self.tables),
            Tag::List => self.sink.list(&slot.items, &self.tables),
            _ => None,
        };
        let Some(external) = taken.map(Value::external) else {
            return value;
        };
        let memo = slot.memo;
        let items = std::mem::take(&mut self.tables.slot_mut(value.index()).items);
        freeze(&mut self.tables, &items);
        if memo != Slot::NO_MEMO {
            self.memo.replace(memo, value, external);
        }
        self.tables.recycle(value.index());
        external
    }

    /// Closes everything that is open, as if the file had gone on to do so.
    pub(crate) fn close_all(&mut self) -> Value {
        while let Ok(start) = self.pop_mark() {
            let target = match start.checked_sub(1).map(|i| self.stack[i]) {
                Some(target) if start > self.fence => target,
                _ => Value::NONE,
            };
            self.join_pending(start, target.tag() == Tag::List);
            // A key whose value is not there yet is dropped.
            let odd = (self.stack.len() - start) % 2;
            let closed = match target.tag() {
                Tag::Dict => {
                    self.stack.truncate(self.stack.len() - odd);
                    self.set_items_from(target, start)
                }
                Tag::List => self.append_from(target, start),
                _ => Ok(()),
            };
            if closed.is_err() || self.stack.len() > start {
                self.stack.truncate(start);
            }
        }
        self.join_pending(0, false);
        self.stack.first().copied().unwrap_or(Value::NONE)
    }

    /// Picklers put the only item of a list behind it until it is complete: if the last of the values
    /// from `start` on is such a one, it is appended. In a dictionary anything that is no key and
    /// follows a list is; among the items of a list, what follows an empty list and is none itself.
    fn join_pending(&mut self, start: usize, in_list: bool) {
        while let [.., target, item] = self.stack[start..]
            && item.as_str_id().is_none()
        {
            let empty = match target.tag() {
                Tag::List => self.tables.slot(target.index()).items.is_empty(),
                Tag::External => false,
                _ => break,
            };
            if in_list && (!empty || item.tag() == Tag::List) {
                break;
            }
            let at = self.stack.len() - 1;
            if self.append_from(target, at).is_err() {
                self.stack.truncate(at);
            }
        }
    }

    /// Puts what the sink made of a container in its place: on the stack right below `start`, and in
    /// the memo.
    #[inline]
    fn hand_over(&mut self, container: Value, external: Value, start: usize) {
        let id = container.index();
        let memo = self.tables.slot(id).memo;
        if memo != Slot::NO_MEMO {
            self.memo.replace(memo, container, external);
        }
        self.tables.recycle(id);
        self.stack.truncate(start);
        self.stack[start - 1] = external;
    }
}

/// The place of a container that may be added to.
#[inline]
pub(crate) fn open_slot(tables: &mut Tables, target: Value, tag: Tag) -> Checked<&mut Slot> {
    if target.tag() != tag {
        return fault(match target.tag() {
            Tag::External => ErrorKind::ChangedAfterUse,
            _ => ErrorKind::WrongTarget {
                expected: match tag {
                    Tag::Dict => "a dictionary",
                    Tag::Set => "a set",
                    _ => "a list",
                },
            },
        });
    }
    let slot = tables.slot_mut(target.index());
    if slot.frozen { fault(ErrorKind::ChangedAfterUse) } else { Ok(slot) }
}

/// Marks the containers among `items` as looked at.
#[inline]
fn freeze(tables: &mut Tables, items: &[Value]) {
    for item in items {
        if item.is_container() {
            tables.slot_mut(item.index()).frozen = true;
        }
    }
}

/// Recently seen strings of up to eight bytes, so that a text that occurs in every entry costs no look
/// into the table.
struct ShortStrings([(u64, usize, StrId); 64]);

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
    fn find(&self, word: u64, n: usize) -> Option<Value> {
        let entry = &self.0[Self::place(word, n)];
        (entry.0 == word && entry.1 == n).then(|| Value::str(entry.2))
    }

    /// Remembers a string that was entered.
    fn remember(&mut self, bytes: &[u8], value: Value) {
        if let (Some(id), ..=8) = (value.as_str_id(), bytes.len()) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            self.0[Self::place(word, bytes.len())] = (word, bytes.len(), id);
        }
    }
}

/// A string into the table.
pub(crate) fn enter(bytes: &[u8], tables: &mut Tables) -> Checked<Value> {
    match text::utf8(bytes) {
        Some(text) => Ok(tables.new_str(&text)?),
        None => fault(ErrorKind::BadText { what: "UTF-8 text" }),
    }
}

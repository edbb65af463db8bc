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

/// Where a run ended well.
pub(crate) enum Outcome {
    /// The instruction at the position needs this many bytes from its start.
    More(u64),
    /// The pickle is complete.
    Done(Value),
}

/// What follows an instruction.
pub(crate) enum Step {
    /// The instruction at this position.
    Next(usize),
    /// Nothing: the pickle is complete.
    Done(Value),
}

/// Why an instruction was not carried out.
pub(crate) enum Halt {
    /// It needs this many bytes from its start.
    More(u64),
    /// It cannot be.
    Fault(ErrorKind),
}

impl From<ErrorKind> for Halt {
    fn from(kind: ErrorKind) -> Self {
        Halt::Fault(kind)
    }
}

/// The `n` bytes from `at` bytes after the instruction on.
#[inline]
pub(crate) fn take(w: &[u8], pos: usize, at: usize, n: usize) -> Result<&[u8], Halt> {
    let bytes = w.get(pos + at..).and_then(|w| w.get(..n));
    bytes.ok_or(Halt::More((at as u64).saturating_add(n as u64)))
}

/// The argument of `N` bytes right after the instruction.
#[inline]
pub(crate) fn array<const N: usize>(w: &[u8], pos: usize) -> Result<[u8; N], Halt> {
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
        }
    }

    /// Runs until the pickle is complete or `w` does not hold the whole next instruction. `position` is
    /// moved to the instruction that is next, or at fault; `base` is the offset of `w` in the input.
    pub(crate) fn run(
        &mut self,
        w: &[u8],
        base: u64,
        position: &mut usize,
    ) -> Result<Outcome, Error> {
        match self.execute(w, base, position) {
            Ok(root) => Ok(Outcome::Done(root)),
            Err(Halt::More(n)) => Ok(Outcome::More(n)),
            Err(Halt::Fault(kind)) => Err(Error { offset: base + *position as u64, kind }),
        }
    }

    fn execute(&mut self, w: &[u8], base: u64, position: &mut usize) -> Result<Value, Halt> {
        let mut pos = *position;
        loop {
            *position = pos;
            let Some(&op) = w.get(pos) else {
                return Err(Halt::More(1));
            };
            match op {
                ops::BINGET => {
                    let [i] = array(w, pos)?;
                    self.get(i.into())?;
                    pos += 2;
                }
                ops::LONG_BINGET => {
                    let i = u32::from_le_bytes(array(w, pos)?);
                    self.get(i.into())?;
                    pos += 5;
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
                    pos += 2 + n;
                }
                ops::BININT => {
                    let i = i32::from_le_bytes(array(w, pos)?);
                    self.push(Value::from(i))?;
                    pos += 5;
                }
                ops::BININT1 => {
                    let [i] = array(w, pos)?;
                    self.push(Value::from(i32::from(i)))?;
                    pos += 2;
                }
                ops::BININT2 => {
                    let i = u16::from_le_bytes(array(w, pos)?);
                    self.push(Value::from(i32::from(i)))?;
                    pos += 3;
                }
                ops::MEMOIZE => {
                    let index = self.memo.count();
                    self.put(index)?;
                    pos += 1;
                }
                ops::SHORT_BINUNICODE => {
                    let [n] = array(w, pos)?;
                    let n = usize::from(n);
                    let bytes = take(w, pos, 2, n)?;
                    let value = self.short.find_or_enter(bytes, &mut self.tables)?;
                    self.push(value)?;
                    pos += 2 + n;
                }
                ops::MARK => {
                    self.mark()?;
                    pos += 1;
                }
                ops::EMPTY_DICT => {
                    self.push_container(Tag::Dict, Vec::new())?;
                    pos += 1;
                }
                ops::SETITEMS => {
                    self.set_items()?;
                    pos += 1;
                }
                ops::EMPTY_LIST => {
                    self.push_container(Tag::List, Vec::new())?;
                    pos += 1;
                }
                ops::APPENDS => {
                    self.append_items()?;
                    pos += 1;
                }
                ops::FRAME => {
                    // The frame's length only helps readers that want to fetch ahead.
                    array::<8>(w, pos)?;
                    pos += 9;
                }
                _ => match self.rare(op, w, base, pos)? {
                    Step::Next(next) => pos = next,
                    Step::Done(root) => return Ok(root),
                },
            }
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: Value) -> Result<(), ErrorKind> {
        if self.stack.len() >= self.limits.stack {
            let limit = self.limits.stack as u64;
            return Err(ErrorKind::Limit { what: "values in one container", limit });
        }
        self.stack.push(value);
        Ok(())
    }

    pub(crate) fn push_container(&mut self, tag: Tag, items: Vec<Value>) -> Result<(), ErrorKind> {
        let value = self.tables.new_container(tag, items)?;
        self.push(value)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Result<Value, ErrorKind> {
        if self.stack.len() <= self.fence {
            return Err(ErrorKind::StackUnderflow);
        }
        self.stack.pop().ok_or(ErrorKind::StackUnderflow)
    }

    #[inline]
    pub(crate) fn top(&self) -> Result<Value, ErrorKind> {
        self.stack[self.fence..].last().copied().ok_or(ErrorKind::StackUnderflow)
    }

    pub(crate) fn mark(&mut self) -> Result<(), ErrorKind> {
        if self.marks.len() >= self.limits.depth {
            let limit = self.limits.depth as u64;
            return Err(ErrorKind::Limit { what: "levels of nesting", limit });
        }
        self.marks.push(self.stack.len());
        self.fence = self.stack.len();
        Ok(())
    }

    /// Closes the last mark; the values above it begin where the answer says.
    #[inline]
    pub(crate) fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        let start = self.marks.pop().ok_or(ErrorKind::NoMark)?;
        self.fence = self.marks.last().copied().unwrap_or(0);
        Ok(start)
    }

    /// Closes the last mark and takes the values above it.
    pub(crate) fn pop_marked(&mut self) -> Result<Vec<Value>, ErrorKind> {
        let start = self.pop_mark()?;
        Ok(self.stack.drain(start..).collect())
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u64) -> Result<(), ErrorKind> {
        let value = self.memo.get(index).ok_or(ErrorKind::MemoMissing(index))?;
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
    pub(crate) fn put(&mut self, index: u64) -> Result<(), ErrorKind> {
        let top = self.top()?;
        if self.memo.count() >= u64::from(self.limits.memo) {
            let limit = self.limits.memo.into();
            return Err(ErrorKind::Limit { what: "memo entries", limit });
        }
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

    /// The container below the last mark and where the marked values begin; the mark is closed.
    #[inline]
    fn marked_target(&mut self) -> Result<(Value, usize), ErrorKind> {
        let start = self.pop_mark()?;
        if start <= self.fence {
            return Err(ErrorKind::StackUnderflow);
        }
        Ok((self.stack[start - 1], start))
    }

    /// `SETITEMS`, `DICT`'s sibling: everything above the mark into the dictionary below it.
    fn set_items(&mut self) -> Result<(), ErrorKind> {
        let (target, start) = self.marked_target()?;
        self.set_items_from(target, start)
    }

    /// Everything from `start` on into the dictionary right below.
    fn set_items_from(&mut self, target: Value, start: usize) -> Result<(), ErrorKind> {
        let items = &self.stack[start..];
        if !items.len().is_multiple_of(2) {
            return Err(ErrorKind::OddItems);
        }
        let slot = open_slot(&mut self.tables, target, Tag::Dict)?;
        let fresh = slot.items.is_empty() && !slot.shared;
        if fresh && items.len() < 2 * BATCH {
            if let Some(external) = self.sink.dict(items, &self.tables) {
                freeze(&mut self.tables, items);
                self.hand_over(target, Value::external(external), start);
                return Ok(());
            }
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
    }

    /// `APPENDS`: everything above the mark to the end of the list below it (`ADDITEMS` for sets).
    pub(crate) fn append_items(&mut self) -> Result<(), ErrorKind> {
        let (target, start) = self.marked_target()?;
        self.append_from(target, start)
    }

    /// Appends everything from `start` on to the list or set right below.
    pub(crate) fn append_from(&mut self, target: Value, start: usize) -> Result<(), ErrorKind> {
        let items = &self.stack[start..];
        let slot = open_slot(&mut self.tables, target, Tag::List)?;
        let fresh = slot.items.is_empty() && !slot.shared;
        if fresh && items.len() < BATCH {
            if let Some(external) = self.sink.list(items, &self.tables) {
                freeze(&mut self.tables, items);
                self.hand_over(target, Value::external(external), start);
                return Ok(());
            }
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
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
            && target.tag() == Tag::List
            && item.as_str_id().is_none()
        {
            let empty = self.tables.slot(target.index()).items.is_empty();
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
pub(crate) fn open_slot(
    tables: &mut Tables,
    target: Value,
    tag: Tag,
) -> Result<&mut Slot, ErrorKind> {
    if target.tag() != tag {
        return Err(match target.tag() {
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
    if slot.frozen { Err(ErrorKind::ChangedAfterUse) } else { Ok(slot) }
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

impl Default for ShortStrings {
    fn default() -> Self {
        Self([(0, usize::MAX, StrId(0)); 64])
    }
}

impl ShortStrings {
    #[inline]
    fn find_or_enter(&mut self, bytes: &[u8], tables: &mut Tables) -> Result<Value, ErrorKind> {
        if bytes.len() > 8 {
            return enter(bytes, tables);
        }
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        let place = (word ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        let entry = &mut self.0[place as usize];
        if entry.0 != word || entry.1 != bytes.len() {
            let value = enter(bytes, tables)?;
            *entry = (word, bytes.len(), value.as_str_id().unwrap_or(StrId(0)));
        }
        Ok(Value::str(entry.2))
    }
}

/// A string into the table.
pub(crate) fn enter(bytes: &[u8], tables: &mut Tables) -> Result<Value, ErrorKind> {
    let text = text::utf8(bytes).ok_or(ErrorKind::BadText { what: "UTF-8 text" })?;
    tables.new_str(&text)
}

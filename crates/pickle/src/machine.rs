//! The stack machine: its state, and the instructions that fill a snapshot. The others are in
//! [`crate::rare`], what concerns containers in [`crate::containers`], and shortcuts in [`crate::quick`].

use crate::error::{Error, ErrorKind};
use crate::limits::Limits;
use crate::memo::Memo;
use crate::ops;
use crate::quick::{ITEMS, ShortStrings};
use crate::sink::Sink;
use crate::tables::{Slot, Tables};
use crate::text;
use crate::value::{Tag, Value};

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
    pub(crate) sink: &'s mut S,
    /// Where the values above the last mark begin; nothing below it can be popped.
    pub(crate) fence: usize,
    pub(crate) memo: Memo,
    pub(crate) short: ShortStrings,
    /// Items of the literal at hand.
    pub(crate) items: Box<[Value; ITEMS]>,
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
    pub(crate) fn room_in_memo(&self) -> Checked<()> {
        if self.memo.count() < u64::from(self.limits.memo) {
            return Ok(());
        }
        fault(ErrorKind::Limit { what: "memo entries", limit: self.limits.memo.into() })
    }
}

/// A string into the table.
pub(crate) fn enter(bytes: &[u8], tables: &mut Tables) -> Checked<Value> {
    match text::utf8(bytes) {
        Some(text) => Ok(tables.new_str(&text)?),
        None => fault(ErrorKind::BadText { what: "UTF-8 text" }),
    }
}

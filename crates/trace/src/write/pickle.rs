//! Snapshots as pickles of protocol 4.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use vramwise_pickle::Strings;

use super::emit::Emit;
use crate::tables::{FrameId, StackId, StackTable, StringTable};

/// Items that go into a list at once, as Python does it.
const BATCH: usize = 1000;

pub(super) struct PickleEmit<W> {
    out: W,
    /// Strings written so far and their memo numbers.
    strings: Strings,
    string_memo: Vec<u32>,
    frame_memo: FxHashMap<FrameId, u32>,
    stack_memo: FxHashMap<StackId, u32>,
    next_memo: u32,
    /// For each open list or dictionary: items since the last mark, `None` before the first.
    open: Vec<Option<usize>>,
}

impl<W: Write> PickleEmit<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0x80, 4])?;
        Ok(Self {
            out,
            strings: Strings::default(),
            string_memo: Vec::new(),
            frame_memo: FxHashMap::default(),
            stack_memo: FxHashMap::default(),
            next_memo: 0,
            open: Vec::new(),
        })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b".")?;
        self.out.flush()
    }

    /// `MEMOIZE`: the object just begun or written gets a number.
    fn memoize(&mut self) -> io::Result<u32> {
        self.out.write_all(&[0x94])?;
        self.next_memo += 1;
        Ok(self.next_memo - 1)
    }

    /// The object of that number again.
    fn get(&mut self, index: u32) -> io::Result<()> {
        match u8::try_from(index) {
            Ok(index) => self.out.write_all(&[b'h', index]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&index.to_le_bytes())
            }
        }
    }

    /// A frame's dictionary.
    fn frame(&mut self, id: FrameId, stacks: &StackTable, strings: &StringTable) -> io::Result<()> {
        if let Some(index) = self.frame_memo.get(&id) {
            return self.get(*index);
        }
        let frame = stacks.frame(id);
        self.begin_dict()?;
        let index = self.memoize()?;
        self.frame_memo.insert(id, index);
        self.key("name")?;
        self.text(strings.get(frame.name))?;
        self.key("filename")?;
        self.text(strings.get(frame.filename))?;
        self.key("line")?;
        self.int(frame.line.into())?;
        self.end_dict()
    }
}

impl<W: Write> Emit for PickleEmit<W> {
    fn none(&mut self) -> io::Result<()> {
        self.out.write_all(b"N")
    }

    fn bool(&mut self, b: bool) -> io::Result<()> {
        self.out.write_all(if b { &[0x88] } else { &[0x89] })
    }

    fn int(&mut self, i: i128) -> io::Result<()> {
        if let Ok(i) = u8::try_from(i) {
            return self.out.write_all(&[b'K', i]);
        }
        if let Ok(i) = u16::try_from(i) {
            self.out.write_all(b"M")?;
            return self.out.write_all(&i.to_le_bytes());
        }
        if let Ok(i) = i32::try_from(i) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&i.to_le_bytes());
        }
        // Two's complement in as few bytes as keep the sign.
        let bits = 129 - if i < 0 { i.leading_ones() } else { i.leading_zeros() };
        let n = (bits as usize).div_ceil(8);
        self.out.write_all(&[0x8a, n as u8])?;
        self.out.write_all(&i.to_le_bytes()[..n])
    }

    fn float(&mut self, x: f64) -> io::Result<()> {
        self.out.write_all(b"G")?;
        self.out.write_all(&x.to_bits().to_be_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let id = self.strings.intern(text).ok_or_else(|| io::Error::other("too many strings"))?;
        if let Some(index) = self.string_memo.get(id.0 as usize) {
            return self.get(*index);
        }
        match (u8::try_from(text.len()), u32::try_from(text.len())) {
            (Ok(n), _) => self.out.write_all(&[0x8c, n])?,
            (_, Ok(n)) => {
                self.out.write_all(b"X")?;
                self.out.write_all(&n.to_le_bytes())?;
            }
            _ => {
                self.out.write_all(&[0x8d])?;
                self.out.write_all(&(text.len() as u64).to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())?;
        let index = self.memoize()?;
        self.string_memo.push(index);
        Ok(())
    }

    fn pair(&mut self, (a, b): (u64, u64)) -> io::Result<()> {
        self.int(a.into())?;
        self.int(b.into())?;
        self.out.write_all(&[0x86])
    }

    fn begin_dict(&mut self) -> io::Result<()> {
        self.open.push(None);
        self.out.write_all(b"}")
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        if let Some(first @ None) = self.open.last_mut() {
            *first = Some(0);
            self.out.write_all(b"(")?;
        }
        self.text(key)
    }

    fn end_dict(&mut self) -> io::Result<()> {
        match self.open.pop().flatten() {
            Some(_) => self.out.write_all(b"u"),
            None => Ok(()),
        }
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.open.push(None);
        self.out.write_all(b"]")
    }

    fn item(&mut self) -> io::Result<()> {
        match self.open.last_mut() {
            Some(Some(n)) if *n < BATCH => {
                *n += 1;
                Ok(())
            }
            Some(state) => {
                let full = state.replace(1).is_some();
                self.out.write_all(if full { b"e(" } else { b"(" })
            }
            None => Ok(()),
        }
    }

    fn end_list(&mut self) -> io::Result<()> {
        match self.open.pop().flatten() {
            Some(_) => self.out.write_all(b"e"),
            None => Ok(()),
        }
    }

    fn stack(
        &mut self,
        stack: StackId,
        stacks: &StackTable,
        strings: &StringTable,
    ) -> io::Result<()> {
        if let Some(index) = self.stack_memo.get(&stack) {
            return self.get(*index);
        }
        self.begin_list()?;
        if stack != StackId::NONE {
            let index = self.memoize()?;
            self.stack_memo.insert(stack, index);
            for frame in stacks.stack(stack) {
                self.item()?;
                self.frame(*frame, stacks, strings)?;
            }
        }
        self.end_list()
    }
}

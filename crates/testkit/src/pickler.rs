//! Writes pickles as CPython's own pickler does with protocol 4: frames of 64 KiB, every container
//! and string memoized, items in batches of a thousand.
//!
//! Only plain data. The sharing is the caller's: [`Pickler::text`] and the others give the memo
//! index of what they wrote, and [`Pickler::get`] refers to it again.

use std::io::{self, Write};

/// Frames are closed as soon as they reach this size.
const FRAME_TARGET: usize = 64 * 1024;
/// Items in one `APPENDS` or `SETITEMS`.
const BATCH: usize = 1000;

/// Index of an object in the pickle's memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoId(u32);

/// A list or dict whose items are being written.
#[derive(Debug)]
pub struct Open {
    id: MemoId,
    len: usize,
    /// Opcode behind a single item, and behind a batch of items.
    one: u8,
    many: u8,
}

/// A pickle in the making.
#[derive(Debug)]
pub struct Pickler<W> {
    out: W,
    frame: Vec<u8>,
    memo: u32,
}

impl<W: Write> Pickler<W> {
    /// Begins a pickle of protocol 4.
    ///
    /// # Errors
    /// What the writer says.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0x80, 4])?;
        Ok(Self { out, frame: Vec::with_capacity(FRAME_TARGET + 1024), memo: 0 })
    }

    /// Ends the pickle and gives the writer back.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(mut self) -> io::Result<W> {
        self.frame.push(b'.');
        self.close_frame()?;
        Ok(self.out)
    }

    /// An object begins: the moment at which CPython closes a full frame.
    fn begin(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME_TARGET { self.close_frame() } else { Ok(()) }
    }

    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= 4 {
            self.out.write_all(&[0x95])?;
            self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        }
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    fn memoize(&mut self) -> MemoId {
        self.frame.push(0x94);
        self.memo += 1;
        MemoId(self.memo - 1)
    }

    /// An object that was written before.
    ///
    /// # Errors
    /// What the writer says.
    pub fn get(&mut self, object: MemoId) -> io::Result<()> {
        self.begin()?;
        match u8::try_from(object.0) {
            Ok(index) => self.frame.extend([b'h', index]),
            Err(_) => {
                self.frame.push(b'j');
                self.frame.extend(object.0.to_le_bytes());
            }
        }
        Ok(())
    }

    /// An integer.
    ///
    /// # Errors
    /// What the writer says.
    pub fn int(&mut self, value: i128) -> io::Result<()> {
        self.begin()?;
        if let Ok(small) = u8::try_from(value) {
            self.frame.extend([b'K', small]);
        } else if let Ok(short) = u16::try_from(value) {
            self.frame.push(b'M');
            self.frame.extend(short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(value) {
            self.frame.push(b'J');
            self.frame.extend(word.to_le_bytes());
        } else {
            // The shortest two's complement form, as CPython writes it.
            let bytes = value.to_le_bytes();
            let mut len = bytes.len();
            let sign = if value < 0 { 0xff } else { 0 };
            while len > 1 && bytes[len - 1] == sign && (bytes[len - 2] & 0x80) == (sign & 0x80) {
                len -= 1;
            }
            self.frame.extend([0x8a, len as u8]);
            self.frame.extend(&bytes[..len]);
        }
        Ok(())
    }

    /// `True` or `False`.
    ///
    /// # Errors
    /// What the writer says.
    pub fn bool(&mut self, value: bool) -> io::Result<()> {
        self.begin()?;
        self.frame.push(if value { 0x88 } else { 0x89 });
        Ok(())
    }

    /// A float.
    ///
    /// # Errors
    /// What the writer says.
    pub fn float(&mut self, value: f64) -> io::Result<()> {
        self.begin()?;
        self.frame.push(b'G');
        self.frame.extend(value.to_be_bytes());
        Ok(())
    }

    /// A new string.
    ///
    /// # Errors
    /// What the writer says.
    pub fn text(&mut self, text: &str) -> io::Result<MemoId> {
        self.begin()?;
        match u8::try_from(text.len()) {
            Ok(len) => self.frame.extend([0x8c, len]),
            Err(_) => {
                self.frame.push(b'X');
                self.frame.extend((text.len() as u32).to_le_bytes());
            }
        }
        self.frame.extend(text.as_bytes());
        Ok(self.memoize())
    }

    /// Begins a list of `len` items; write each after [`Pickler::item`], then [`Pickler::close`].
    ///
    /// # Errors
    /// What the writer says.
    pub fn open_list(&mut self, len: usize) -> io::Result<Open> {
        self.open(len, b']', b'a', b'e')
    }

    /// Begins a dict of `len` pairs; write each key and value after [`Pickler::item`], then
    /// [`Pickler::close`].
    ///
    /// # Errors
    /// What the writer says.
    pub fn open_dict(&mut self, len: usize) -> io::Result<Open> {
        self.open(len, b'}', b's', b'u')
    }

    fn open(&mut self, len: usize, empty: u8, one: u8, many: u8) -> io::Result<Open> {
        self.begin()?;
        self.frame.push(empty);
        Ok(Open { id: self.memoize(), len, one, many })
    }

    /// Item (or pair) number `index` of an open container follows.
    ///
    /// # Errors
    /// What the writer says.
    pub fn item(&mut self, open: &Open, index: usize) -> io::Result<()> {
        if open.len > 1 && index.is_multiple_of(BATCH) {
            if index > 0 {
                self.frame.push(open.many);
            }
            self.frame.push(b'(');
        }
        Ok(())
    }

    /// Ends an open container.
    ///
    /// # Errors
    /// What the writer says.
    pub fn close(&mut self, open: Open) -> io::Result<MemoId> {
        match open.len {
            0 => {}
            1 => self.frame.push(open.one),
            _ => self.frame.push(open.many),
        }
        Ok(open.id)
    }

    /// A new tuple of two integers.
    ///
    /// # Errors
    /// What the writer says.
    pub fn pair(&mut self, first: i128, second: i128) -> io::Result<MemoId> {
        self.begin()?;
        self.int(first)?;
        self.int(second)?;
        self.frame.push(0x86);
        Ok(self.memoize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Pickler<Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut pickler = Pickler::new(Vec::new()).unwrap();
        write(&mut pickler).unwrap();
        pickler.finish().unwrap()
    }

    fn list(
        pickler: &mut Pickler<Vec<u8>>,
        len: usize,
        mut item: impl FnMut(&mut Pickler<Vec<u8>>, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let list = pickler.open_list(len)?;
        for i in 0..len {
            pickler.item(&list, i)?;
            item(pickler, i)?;
        }
        pickler.close(list).map(drop)
    }

    /// The bytes are those of `x = ["a"]; pickle.dumps([x, x], 4)` in CPython 3.11.
    #[test]
    fn a_shared_list_is_written_as_cpython_does() {
        let bytes = written(|p| {
            list(p, 2, |p, i| match i {
                0 => list(p, 1, |p, _| p.text("a").map(drop)),
                _ => p.get(MemoId(1)),
            })
        });
        let frame = b"]\x94(]\x94\x8c\x01a\x94ah\x01e.";
        let mut want = b"\x80\x04\x95\0\0\0\0\0\0\0\0".to_vec();
        want[3] = frame.len() as u8;
        want.extend(frame);
        assert_eq!(bytes, want);
    }

    /// The bytes are those of `pickle.dumps(..., 4)` in CPython 3.11, which writes short pickles
    /// without a frame.
    #[test]
    fn integers_take_their_shortest_form() {
        let body = |value| written(|p| p.int(value))[2..].to_vec();
        assert_eq!(body(0), b"K\0.");
        assert_eq!(body(256)[9..], *b"M\0\x01.");
        assert_eq!(body(-1)[9..], *b"J\xff\xff\xff\xff.");
        assert_eq!(body(1 << 31)[9..], *b"\x8a\x05\0\0\0\x80\0.");
        assert_eq!(body((1 << 64) - 1)[9..], *b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.");
        assert_eq!(body(-(1 << 31) - 1)[9..], *b"\x8a\x05\xff\xff\xff\x7f\xff.");
    }

    #[test]
    fn long_lists_are_written_in_batches_and_frames() {
        let bytes = written(|p| list(p, 30_001, |p, i| p.int(i as i128 + 65_536)));
        // `len(pickle.dumps([i + 65536 for i in range(30001)], 4))` in CPython 3.11.
        assert_eq!(bytes.len(), 150_099);
        let first_frame = u64::from_le_bytes(bytes[3..11].try_into().unwrap());
        assert_eq!(bytes[11 + first_frame as usize], 0x95);
    }
}

//! Feeding the machine from memory or from a stream.

use std::io::Read;

use crate::error::{Error, ErrorKind};
use crate::limits::Limits;
use crate::machine::{Machine, Outcome};
use crate::sink::{NoSink, Sink};
use crate::tables::Tables;
use crate::value::Value;

/// Bytes of the window on a stream.
const WINDOW: usize = 256 << 10;

/// A pickle that was read.
#[derive(Debug)]
pub struct Document {
    /// The object.
    pub root: Value,
    /// Where it and its parts are kept.
    pub tables: Tables,
    /// The protocol that the file names, 0 where it names none (protocols 0 and 1).
    pub protocol: u8,
    /// Bytes of the pickle itself.
    pub bytes: u64,
    /// NUL bytes right after the pickle (padding).
    pub padding: u64,
    /// Bytes after that.
    pub trailing: u64,
}

/// Reads one pickle.
pub struct Reader<'s, S> {
    machine: Machine<'s, S>,
}

/// Reads a pickle in memory, keeping all of it.
///
/// # Errors
/// [`Error`] where it is damaged, asks for code to run, or asks for more than the limits allow.
pub fn read_slice(bytes: &[u8], limits: &Limits) -> Result<Document, Error> {
    Reader::new(limits, &mut NoSink).read_slice(bytes)
}

impl<'s, S: Sink> Reader<'s, S> {
    /// A reader that hands to `sink` what it wants to take over.
    pub fn new(limits: &Limits, sink: &'s mut S) -> Self {
        Self { machine: Machine::new(limits, sink) }
    }

    /// Reads the pickle at the start of `bytes`.
    ///
    /// # Errors
    /// See [`read_slice`].
    pub fn read_slice(&mut self, bytes: &[u8]) -> Result<Document, Error> {
        let mut position = 0;
        let limit = self.machine.limits.input_bytes;
        if bytes.len() as u64 > limit {
            return Err(too_long(limit));
        }
        match self.machine.run(bytes, 0, &mut position)? {
            Outcome::Done(root) => {
                let rest = &bytes[position + 1..];
                let padding = rest.iter().take_while(|b| **b == 0).count();
                Ok(self.document(root, position, padding as u64, (rest.len() - padding) as u64))
            }
            Outcome::More(needed) => Err(truncated(0, bytes, position, needed)),
        }
    }

    /// Reads the pickle at the start of a stream, which is read to its end and never kept whole.
    ///
    /// # Errors
    /// See [`read_slice`]; also where reading fails.
    pub fn read(&mut self, stream: impl Read) -> Result<Document, Error> {
        let mut window = Window::new(stream, self.machine.limits.input_bytes);
        loop {
            let mut position = 0;
            let step = self.machine.run(window.bytes(), window.base, &mut position)?;
            window.consume(position);
            match step {
                Outcome::Done(root) => {
                    let bytes = window.base as usize;
                    window.consume(1);
                    let (padding, trailing) = window.count_rest()?;
                    return Ok(self.document(root, bytes, padding, trailing));
                }
                Outcome::More(needed) => {
                    if !window.fill(needed)? {
                        return Err(truncated(window.base, window.bytes(), 0, needed));
                    }
                }
            }
        }
    }

    /// After a failure: what was read until then. Open lists and dictionaries are closed with the items
    /// that they have.
    pub fn salvage(mut self) -> Document {
        let root = self.machine.close_all();
        self.document(root, 0, 0, 0)
    }

    fn document(&mut self, root: Value, stop: usize, padding: u64, trailing: u64) -> Document {
        let protocol = self.machine.protocol;
        Document {
            root,
            tables: self.machine.reset(),
            protocol,
            bytes: stop as u64 + 1,
            padding,
            trailing,
        }
    }
}

fn too_long(limit: u64) -> Error {
    Error { offset: limit, kind: ErrorKind::Limit { what: "bytes of input", limit } }
}

fn truncated(base: u64, bytes: &[u8], position: usize, needed: u64) -> Error {
    let left = (bytes.len() - position) as u64;
    let offset = base + position as u64;
    let kind = match (offset, left) {
        (0, 0) => ErrorKind::NotAPickle,
        // A line that has no end asks for twice what is there.
        _ => ErrorKind::Truncated { needed: needed.max(left + 1), left },
    };
    Error { offset, kind }
}

/// A part of a stream, in memory.
struct Window<R> {
    stream: R,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Offset of `start` in the stream.
    base: u64,
    limit: u64,
    at_end: bool,
}

impl<R: Read> Window<R> {
    fn new(stream: R, limit: u64) -> Self {
        let buffer = vec![0; WINDOW];
        Self { stream, buffer, start: 0, end: 0, base: 0, limit, at_end: false }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, n: usize) {
        self.start += n;
        self.base += n as u64;
    }

    /// Reads until at least `wanted` bytes are there or the stream ends; `false` where nothing came. The
    /// buffer grows with what arrives, not with what is asked for.
    fn fill(&mut self, wanted: u64) -> Result<bool, Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let before = self.end;
        while (self.end as u64) < wanted && !self.at_end {
            if self.end == self.buffer.len() {
                self.buffer.resize(self.end * 2, 0);
            }
            self.read_some()?;
        }
        Ok(self.end > before)
    }

    fn read_some(&mut self) -> Result<(), Error> {
        let offset = self.base + (self.end - self.start) as u64;
        match self.stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.at_end = true,
            Ok(n) => {
                self.end += n;
                if offset + n as u64 > self.limit {
                    return Err(too_long(self.limit));
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error { offset, kind: ErrorKind::Io(e) }),
        }
        Ok(())
    }

    /// Reads to the end: NUL bytes first, then others.
    fn count_rest(&mut self) -> Result<(u64, u64), Error> {
        let (mut padding, mut trailing) = (0, 0);
        loop {
            let zeros = match trailing {
                0 => self.bytes().iter().take_while(|b| **b == 0).count(),
                _ => 0,
            };
            padding += zeros as u64;
            trailing += (self.bytes().len() - zeros) as u64;
            self.consume(self.bytes().len());
            if self.at_end {
                return Ok((padding, trailing));
            }
            (self.start, self.end) = (0, 0);
            self.read_some()?;
        }
    }
}

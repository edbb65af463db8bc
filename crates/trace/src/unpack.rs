//! Decompression as a stream, with an eye on data that unfolds without end.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::error::ReadError;
use crate::sniff::Packing;

/// Content below this size is never called a bomb.
const HARMLESS: u64 = 32 << 20;

/// How many times larger than its compressed form a snapshot may be. Recordings reach about 30.
const MAX_RATIO: u64 = 400;

/// The content of a compressed stream.
pub(crate) struct Unpacked<'a> {
    inner: Box<dyn Read + 'a>,
    packing: Packing,
    counts: Rc<Counts>,
}

/// What is known of a stream, also when it is gone.
#[derive(Debug, Default)]
struct Counts {
    packed: Cell<u64>,
    unpacked: Cell<u64>,
    failure: Cell<Option<Failure>>,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Damaged,
    Bomb,
}

/// Tells what went wrong in an [`Unpacked`] that is gone.
pub(crate) struct Verdict {
    packing: Packing,
    counts: Rc<Counts>,
}

impl Verdict {
    /// The error behind `source`, which reading returned.
    pub(crate) fn explain(&self, source: io::Error) -> ReadError {
        let bytes = self.counts.unpacked.get();
        match self.counts.failure.get() {
            None => ReadError::Io(source),
            Some(Failure::Damaged) => {
                ReadError::Compressed { format: self.packing.name(), bytes, source }
            }
            Some(Failure::Bomb) => ReadError::Bomb { compressed: self.counts.packed.get(), bytes },
        }
    }
}

impl<'a> Unpacked<'a> {
    pub(crate) fn new(stream: impl Read + 'a, packing: Packing) -> io::Result<(Self, Verdict)> {
        let counts = Rc::new(Counts::default());
        let counted = Counted { inner: stream, counts: Rc::clone(&counts) };
        let inner: Box<dyn Read + 'a> = match packing {
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(counted)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(counted)?),
        };
        let verdict = Verdict { packing, counts: Rc::clone(&counts) };
        Ok((Self { inner, packing, counts }, verdict))
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = match self.inner.read(buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
            Err(e) => {
                self.counts.failure.set(Some(Failure::Damaged));
                return Err(e);
            }
        };
        let unpacked = self.counts.unpacked.get() + n as u64;
        self.counts.unpacked.set(unpacked);
        if unpacked > HARMLESS && unpacked / MAX_RATIO > self.counts.packed.get() {
            self.counts.failure.set(Some(Failure::Bomb));
            return Err(io::Error::other(format!(
                "{} data unfolds without end",
                self.packing.name()
            )));
        }
        Ok(n)
    }
}

/// Counts what goes through.
struct Counted<R> {
    inner: R,
    counts: Rc<Counts>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.counts.packed.set(self.counts.packed.get() + n as u64);
        Ok(n)
    }
}

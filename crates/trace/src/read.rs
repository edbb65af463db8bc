//! Opening snapshots: what kind of file it is, and the way from there to tables.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use vramwise_pickle::{Limits, Reader};

use crate::assemble::{assemble, complete_events};
use crate::error::ReadError;
use crate::rows::Rows;
use crate::snapshot::Snapshot;

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Return what is complete of a damaged file, with warnings, instead of an error.
    pub salvage: bool,
    /// Bounds on what a file may contain.
    pub limits: Limits,
}

/// Reads the snapshot in a file: a pickle or JSON, plain or compressed with gzip or zstd.
///
/// # Errors
/// [`ReadError`] where the file cannot be opened, is no snapshot, or is damaged.
pub fn read_path(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    let path = path.as_ref();
    read_with(File::open(path)?, options)
}

/// Reads the snapshot in memory, as [`read_path`] does.
///
/// # Errors
/// See [`read_path`].
pub fn read_slice(bytes: &[u8], options: &ReadOptions) -> Result<Snapshot, ReadError> {
    read_with(bytes, options)
}

/// Reads the snapshot that comes from a stream, as [`read_path`] does.
///
/// # Errors
/// See [`read_path`].
pub fn read_reader(stream: impl Read, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    read_with(stream, options)
}

fn read_with(mut stream: impl Read, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let whole = io::Cursor::new(head).chain(stream);
    if head == [0x1f, 0x8b] {
        read_pickle(flate2::read::MultiGzDecoder::new(whole), options)
    } else {
        read_pickle(whole, options)
    }
}

fn read_pickle(stream: impl Read, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    let mut rows = Rows::default();
    let mut reader = Reader::new(&options.limits, &mut rows);
    match reader.read(stream) {
        Ok(document) => assemble(document, rows, options.salvage),
        Err(source) => Err(ReadError::Pickle { source, events: complete_events(&rows.out) }),
    }
}

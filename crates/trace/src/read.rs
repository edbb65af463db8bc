//! Opening snapshots: what kind of file it is, and the way from there to tables.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::Path;

use vramwise_pickle::{Document, ErrorKind, Limits, NoSink, Reader};

use crate::assemble::assemble;
use crate::error::ReadError;
use crate::html;
use crate::json;
use crate::rows::Rows;
use crate::snapshot::{Snapshot, Warning};
use crate::sniff::{self, Content, Packing};
use crate::unpack::Unpacked;

/// What some editors write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Return what is complete of a damaged file, with warnings, instead of an error.
    pub salvage: bool,
    /// Bounds on what a file may contain.
    pub limits: Limits,
}

/// Reads the snapshot in a file: a pickle or JSON, plain or compressed with gzip or zstd, or the page
/// that PyTorch's own viewer made of one.
///
/// # Errors
/// [`ReadError`] where the file cannot be opened, is no snapshot, or is damaged.
pub fn read_path(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    let path = path.as_ref();
    if fs::metadata(path)?.is_dir() {
        return Err(ReadError::Directory);
    }
    match read_packed(File::open(path)?, options, true) {
        Err(error) if is_unusual(&error) => read_packed(File::open(path)?, options, false),
        result => result,
    }
}

/// Reads the snapshot in memory, as [`read_path`] does.
///
/// # Errors
/// See [`read_path`].
pub fn read_slice(bytes: &[u8], options: &ReadOptions) -> Result<Snapshot, ReadError> {
    match read_packed(bytes, options, true) {
        Err(error) if is_unusual(&error) => read_packed(bytes, options, false),
        result => result,
    }
}

/// Reads the snapshot that comes from a stream, as [`read_path`] does.
///
/// # Errors
/// See [`read_path`]. A pickle that changes objects after they were complete, which no known writer
/// makes, can be read from a file but not from a stream.
pub fn read_reader(stream: impl Read, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    read_packed(stream, options, true)
}

/// What a file turned out to be.
#[derive(Debug)]
pub enum LogOrSnapshot {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// Anything else that can be text, unpacked: its bytes.
    Log(Vec<u8>),
    /// The beginning of one whose compressed data is damaged behind it, and how: logs are often cut off.
    PartOfLog(Vec<u8>, ReadError),
}

/// Reads what is either a snapshot or a log, plain or compressed with gzip or zstd. What begins like a
/// pickle must be a snapshot; JSON, HTML and the oldest pickles are taken for one where they can be read
/// as one, and for a log otherwise.
///
/// # Errors
/// [`ReadError`] for a damaged pickle, compression that is damaged from its beginning, and files of kinds
/// that are never text.
pub fn read_log_or_snapshot(
    stream: impl Read,
    options: &ReadOptions,
) -> Result<LogOrSnapshot, ReadError> {
    let (head, stream) = peek(stream)?;
    let Some(packing) = Packing::of(&head) else {
        let mut broken = None;
        let read = either(&head, stream, options, u64::MAX, &mut broken)?;
        return broken.map_or(Ok(read), |error| Err(ReadError::Io(error)));
    };
    let (unpacked, verdict) = Unpacked::new(stream, packing)?;
    let (head, stream) = peek(unpacked).map_err(|e| verdict.explain(e))?;
    if let Some(inner) = Packing::of(&head) {
        return Err(ReadError::CompressedTwice { outer: packing.name(), inner: inner.name() });
    }
    let mut broken = None;
    let read = either(&head, stream, options, UNPACKED_LOG, &mut broken);
    let read = read.map_err(|error| match error {
        ReadError::Io(e) => verdict.explain(e),
        other => other,
    })?;
    match (broken.map(|error| verdict.explain(error)), read) {
        (None, read) => Ok(read),
        (Some(error @ ReadError::Compressed { .. }), LogOrSnapshot::Log(bytes)) => {
            Ok(LogOrSnapshot::PartOfLog(bytes, error))
        }
        (Some(error), _) => Err(error),
    }
}

/// Bytes that a compressed log may have: a small file must not fill the memory.
const UNPACKED_LOG: u64 = 1 << 30;

fn either(
    head: &[u8],
    mut stream: impl Read,
    options: &ReadOptions,
    limit: u64,
    broken: &mut Option<io::Error>,
) -> Result<LogOrSnapshot, ReadError> {
    if matches!(head, [0x80, 2..=5, ..]) {
        let snapshot = read_pickle(stream, options, true)?;
        return Ok(LogOrSnapshot::Snapshot(Box::new(snapshot)));
    }
    if sniff::is_never_text(head) {
        sniff::content(head)?;
    }
    let mut bytes = Vec::new();
    // What came before a fault stays in `bytes`.
    *broken = stream.by_ref().take(limit.saturating_add(1)).read_to_end(&mut bytes).err();
    if bytes.len() as u64 > limit {
        return Err(ReadError::Io(io::Error::other(
            "the text is larger than 1 GiB when it is unpacked: unpack it and keep the part with the \
             error",
        )));
    }
    let says = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
    let like_one = match sniff::content(head) {
        // Of protocol 0 or 1, which look like text.
        Ok(sniff::Content::Pickle) => true,
        Ok(_) => says(b"segments") || says(b"device_traces"),
        Err(_) => false,
    };
    if like_one && let Ok(snapshot) = read_slice(&bytes, options) {
        return Ok(LogOrSnapshot::Snapshot(Box::new(snapshot)));
    }
    Ok(LogOrSnapshot::Log(bytes))
}

/// Whether it is worth another try that keeps all objects as they are.
fn is_unusual(error: &ReadError) -> bool {
    matches!(
        error,
        ReadError::Pickle {
            source: vramwise_pickle::Error { kind: ErrorKind::ChangedAfterUse, .. },
            ..
        }
    )
}

/// The first bytes of a stream, and the whole of it.
fn peek<'a>(mut stream: impl Read + 'a) -> io::Result<(Vec<u8>, impl Read + 'a)> {
    let mut head = Vec::with_capacity(sniff::HEAD);
    stream.by_ref().take(sniff::HEAD as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(stream)))
}

/// Reads what may be compressed.
fn read_packed(
    stream: impl Read,
    options: &ReadOptions,
    compact: bool,
) -> Result<Snapshot, ReadError> {
    let (head, stream) = peek(stream)?;
    let Some(packing) = Packing::of(&head) else {
        return read_plain(&head, stream, options, compact);
    };
    let (unpacked, verdict) = Unpacked::new(stream, packing)?;
    let (head, stream) = peek(unpacked).map_err(|e| verdict.explain(e))?;
    if let Some(inner) = Packing::of(&head) {
        return Err(ReadError::CompressedTwice { outer: packing.name(), inner: inner.name() });
    }
    read_plain(&head, stream, options, compact).map_err(|error| match error {
        ReadError::Io(e) => verdict.explain(e),
        other => other,
    })
}

/// Reads what is not compressed (any more).
fn read_plain(
    head: &[u8],
    stream: impl Read,
    options: &ReadOptions,
    compact: bool,
) -> Result<Snapshot, ReadError> {
    match sniff::content(head)? {
        Content::Pickle => read_pickle(stream, options, compact),
        Content::Json if head.starts_with(BYTE_ORDER_MARK) => {
            let mut stream = stream;
            stream.read_exact(&mut [0; 3])?;
            read_json(stream, options)
        }
        Content::Json => read_json(stream, options),
        Content::Html => {
            let mut page = Vec::new();
            let limit = options.limits.string_bytes;
            stream.take(limit).read_to_end(&mut page)?;
            let what = "a page of HTML";
            let Some(bytes) = html::embedded(&page) else {
                let hint = if page.len() as u64 == limit {
                    "it is too large to look for a snapshot in it"
                } else {
                    "no snapshot is embedded in it"
                };
                return Err(ReadError::OtherFormat { what, hint });
            };
            drop(page);
            match sniff::content(&bytes)? {
                Content::Pickle => read_pickle(bytes.as_slice(), options, compact),
                Content::Json => read_json(bytes.as_slice(), options),
                Content::Html => Err(ReadError::OtherFormat {
                    what,
                    hint: "what is embedded in it is HTML again",
                }),
            }
        }
    }
}

fn read_pickle(
    stream: impl Read,
    options: &ReadOptions,
    compact: bool,
) -> Result<Snapshot, ReadError> {
    let mut rows = Rows::default();
    let result = if compact {
        let mut reader = Reader::new(&options.limits, &mut rows);
        reader.read(stream).map_err(|e| (e, reader.salvage()))
    } else {
        let mut keep = NoSink;
        let mut reader = Reader::new(&options.limits, &mut keep);
        reader.read(stream).map_err(|e| (e, reader.salvage()))
    };
    let (source, document) = match result {
        Ok(document) => {
            let trailing = document.trailing;
            let mut snapshot = assemble(document, rows, options.salvage)?;
            warn_of_trailing(&mut snapshot, trailing);
            return Ok(snapshot);
        }
        Err(failure) => failure,
    };
    let events = rows.out.events.len() as u64;
    if options.salvage && !matches!(source.kind, ErrorKind::ChangedAfterUse) {
        let why = source.to_string();
        if let Some(snapshot) = salvaged(document, rows, why) {
            return Ok(snapshot);
        }
    }
    Err(match source.kind {
        ErrorKind::Io(e) => ReadError::Io(e),
        _ => ReadError::Pickle { source, events },
    })
}

fn read_json(stream: impl Read, options: &ReadOptions) -> Result<Snapshot, ReadError> {
    let mut rows = Rows::default();
    let stream = stream.take(options.limits.input_bytes);
    let json::JsonDocument { document, error, trailing } =
        json::read(stream, &mut rows, &options.limits);
    let Some(error) = error else {
        let mut snapshot = assemble(document, rows, options.salvage)?;
        warn_of_trailing(&mut snapshot, trailing.into());
        return Ok(snapshot);
    };
    let events = rows.out.events.len() as u64;
    let (line, column) = (error.line(), error.column());
    if options.salvage {
        let why = format!("line {line}, column {column}: {error}");
        if let Some(snapshot) = salvaged(document, rows, why) {
            return Ok(snapshot);
        }
    }
    if error.is_io() {
        return Err(ReadError::Io(error.into()));
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    Err(ReadError::Json { line, column, message, events })
}

/// What is complete of a damaged file, if that is a snapshot at all.
fn salvaged(document: Document, rows: Rows, why: String) -> Option<Snapshot> {
    let mut snapshot = assemble(document, rows, true).ok()?;
    let something = |d: &crate::DeviceTrace| !d.segments.is_empty() || !d.events.is_empty();
    if !snapshot.devices.iter().any(something) {
        return None;
    }
    let message = format!("the file is damaged and only the part before that was read ({why})");
    snapshot.warnings.insert(0, Warning { code: "damaged-file", message });
    Some(snapshot)
}

fn warn_of_trailing(snapshot: &mut Snapshot, bytes: u64) {
    if bytes > 0 {
        let message = "more data follows the snapshot and was ignored".into();
        snapshot.warnings.push(Warning { code: "trailing-data", message });
    }
}

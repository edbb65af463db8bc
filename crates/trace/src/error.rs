//! Why a snapshot could not be read.

use std::io;

/// A snapshot that could not be read. The message says what is wrong, where, and what to do; it does
/// not name the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A directory where a file is expected.
    #[error("is a directory; name one of the files in it")]
    Directory,
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// The compressed data is damaged.
    #[error("the {format} data is damaged after {bytes} bytes of content: {source}")]
    Compressed {
        /// `gzip` or `zstd`.
        format: &'static str,
        /// Bytes of content that were good.
        bytes: u64,
        /// What the decompressor said.
        source: io::Error,
    },
    /// Compressed twice.
    #[error("is {inner} inside {outer}; decompress it once and try again")]
    CompressedTwice {
        /// Format outside.
        outer: &'static str,
        /// Format inside.
        inner: &'static str,
    },
    /// Compressed data that unfolds without end.
    #[error(
        "unfolds from {compressed} to more than {bytes} bytes, which no memory snapshot does; refused"
    )]
    Bomb {
        /// Bytes of compressed data so far.
        compressed: u64,
        /// Bytes of content so far.
        bytes: u64,
    },
    /// The pickle is damaged or does not hold plain data.
    #[error("{source}{}", events_read(*.events))]
    Pickle {
        /// What is wrong, and where.
        source: vramwise_pickle::Error,
        /// Events that were complete before that.
        events: u64,
    },
    /// The JSON text is damaged.
    #[error("line {line}, column {column}: {message}{}", events_read(*.events))]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        message: String,
        /// Events that were complete before that.
        events: u64,
    },
    /// A file of another kind.
    #[error("is {what}, not a memory snapshot; {hint}")]
    OtherFormat {
        /// What it is.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The data is readable and is something else.
    #[error(
        "holds {what}, not a memory snapshot (a dictionary with 'segments' and 'device_traces')"
    )]
    NotASnapshot {
        /// What it holds.
        what: String,
    },
    /// A part of the snapshot cannot be used.
    #[error("{place}: {problem}")]
    Entry {
        /// Which device, event, segment and block.
        place: String,
        /// Which key, and what is wrong with it.
        problem: String,
    },
    /// The same entries are listed so often that they would unfold without end.
    #[error("lists the same {what} again and again, which no memory snapshot does; refused")]
    Overshared {
        /// What is listed.
        what: &'static str,
    },
}

fn events_read(events: u64) -> String {
    match events {
        0 => String::new(),
        1 => " (1 event was complete before that)".into(),
        n => format!(" ({n} events were complete before that)"),
    }
}

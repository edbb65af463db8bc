//! What kind of file it is, by its first bytes. Names are not looked at.

use crate::error::ReadError;

/// Bytes that are looked at.
pub(crate) const HEAD: usize = 512;

/// Compression around a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }

    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Packing::Zstd)
            }
            _ => None,
        }
    }
}

/// What is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Pickle,
    Json,
    Html,
}

/// Whether a file is of a known kind that is neither a snapshot nor text.
pub(crate) fn is_never_text(head: &[u8]) -> bool {
    let kinds: [&[u8]; 5] =
        [b"SQLite format 3\0", b"PK\x03\x04", b"PK\x05\x06", b"BZh", b"\xfd7zXZ\0"];
    kinds.iter().any(|kind| head.starts_with(kind))
}

/// The kind of a file that is not compressed.
///
/// # Errors
/// [`ReadError::OtherFormat`] for what cannot be a snapshot, and [`ReadError::Empty`].
pub(crate) fn content(head: &[u8]) -> Result<Content, ReadError> {
    let other = |what, hint| Err(ReadError::OtherFormat { what, hint });
    let dump = "write the snapshot with torch.cuda.memory._dump_snapshot(path)";
    if head.is_empty() {
        return Err(ReadError::Empty);
    }
    if head.starts_with(b"SQLite format 3\0") {
        return other("an SQLite database", dump);
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        let hint = "if torch.save wrote it, write the snapshot with \
                    torch.cuda.memory._dump_snapshot(path) or pickle.dump; if it is an archive, unpack it";
        return other("a zip archive", hint);
    }
    if head.starts_with(b"BZh") {
        return other("compressed with bzip2", "decompress it, or use gzip or zstd");
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        return other("compressed with xz", "decompress it, or use gzip or zstd");
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match (head, text) {
        ([0x80, ..], _) => Ok(Content::Pickle),
        (_, [b'{' | b'[', ..]) => Ok(Content::Json),
        (_, [b'<', ..]) => Ok(Content::Html),
        // What the protocols without a marker begin with.
        ([b'(' | b']' | b'}' | b'c' | b'P', ..], _) => Ok(Content::Pickle),
        _ if head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e)) => {
            other("plain text", "a snapshot is a pickle or JSON file")
        }
        _ => other("no file of a known kind", dump),
    }
}

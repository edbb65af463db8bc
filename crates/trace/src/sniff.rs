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

const A_SNAPSHOT_IS: &str = "a snapshot is a pickle or JSON file";

/// Whether it is text, as far as it is looked at, which may be in the middle of a character.
fn is_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let usual = |c: char| matches!(c, '\t' | '\n' | '\r' | '\x08' | '\x1b');
    !whole.chars().any(|c| c.is_control() && !usual(c))
}

/// Whether a text begins with words: in the first line of a pickle of protocol 0 only a quoted string, or one
/// that is put into the memo in the next line, has a space.
fn is_prose(head: &[u8]) -> bool {
    let mut lines = head.split(|b| *b == b'\n');
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let quoted = first.starts_with(b"(S'") || first.starts_with(b"(S\"");
    let kept = first.starts_with(b"(V") && matches!(second, [b'p', b'0'..=b'9', ..]);
    first.contains(&b' ') && !quoted && !kept
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
    if head.starts_with(b"\x7fELF") {
        return other("a program or a library (ELF)", dump);
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return other("plain text (UTF-16)", A_SNAPSHOT_IS);
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_text = is_text(head);
    let is_prose = is_text && is_prose(head);
    match (head, text) {
        ([0x80, ..], _) => Ok(Content::Pickle),
        (_, [b'{' | b'[', ..]) => Ok(Content::Json),
        (_, [b'<', ..]) => Ok(Content::Html),
        // What the protocols without a marker begin with.
        ([b'(' | b']' | b'}' | b'c' | b'P', ..], _) if !is_prose => Ok(Content::Pickle),
        _ if is_text => other("plain text", A_SNAPSHOT_IS),
        _ => other("no file of a known kind", dump),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(head: &[u8]) -> String {
        match content(head) {
            Ok(kind) => format!("{kind:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_log_is_called_a_text_whatever_it_begins_with() {
        let logs = [
            "(Worker pid=12) step 1\n",
            "Processing 3 files\n",
            "col 1\n",
            "Größe 3\n",
            "\u{1b}[31mred\n",
        ];
        for text in logs {
            assert!(
                told(text.as_bytes()).starts_with("is plain text"),
                "{text}: {}",
                told(text.as_bytes())
            );
        }
        // Cut in the middle of a character.
        assert!(told("Gr\u{f6}\u{df}e".as_bytes()[..5].as_ref()).starts_with("is plain text"));
        assert!(told(b"\xff\xfeo\0k\0").starts_with("is plain text (UTF-16)"));
        assert!(told(b"\x7fELF\x02\x01").starts_with("is a program"));
        assert!(told(b"\x01\x02\x03").starts_with("is no file of a known kind"));
        for text in ["(VllmWorker pid=3) a\n", "(Set up) b\n"] {
            assert!(told(text.as_bytes()).starts_with("is plain text"), "{text}");
        }
        for pickle in [b"(S'a b'\nios\nsystem\n".as_slice(), b"(Va b\np0\n"] {
            assert_eq!(told(pickle), "Pickle");
        }
        for pickle in [b"(dp0\nVa\np1\n".as_slice(), b"cos\nsystem\n", b"]q\0.", b"\x80\x04]."] {
            assert_eq!(told(pickle), "Pickle");
        }
    }
}

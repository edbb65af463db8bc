//! What can be wrong with a pickle.

use std::fmt;
use std::io;

/// A pickle that could not be read, and where.
#[derive(Debug)]
pub struct Error {
    /// Offset of the instruction in the (decompressed) input.
    pub offset: u64,
    /// What is wrong.
    pub kind: ErrorKind,
}

/// Kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input ends in the middle of an instruction or before the end of the pickle.
    Truncated {
        /// Bytes that the instruction needs from its start.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The first byte starts no pickle.
    NotAPickle,
    /// A byte that is no instruction.
    UnknownOpcode(u8),
    /// A protocol that does not exist yet.
    Protocol(u8),
    /// An instruction that would run code.
    Code {
        /// Its name in the pickle protocol.
        opcode: &'static str,
        /// What it would import or call, as far as the file says.
        name: Option<String>,
    },
    /// Data outside the file (protocol 5 buffers).
    OutOfBand,
    /// More than [`crate::Limits`] allow.
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A negative length or index.
    Negative,
    /// An instruction wants more values than the stack holds.
    StackUnderflow,
    /// An instruction wants a mark and there is none.
    NoMark,
    /// A dictionary is given a key without a value.
    OddItems,
    /// An instruction wants to add to something that is not the right container.
    WrongTarget {
        /// What was expected.
        expected: &'static str,
    },
    /// A reference to a memo entry that was never stored.
    MemoMissing(u64),
    /// Text that cannot be decoded.
    BadText {
        /// What kind of text.
        what: &'static str,
    },
    /// An object is changed after it was complete, which no pickler does.
    ChangedAfterUse,
    /// Reading failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.kind)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, left: 0 } if *needed <= 1 => {
                f.write_str("the file ends before the pickle does")
            }
            Self::Truncated { needed, left } => {
                write!(f, "the file ends too early: this needs {needed} bytes and {left} are left")
            }
            Self::NotAPickle => f.write_str("this is not a pickle"),
            Self::UnknownOpcode(byte) => {
                write!(f, "0x{byte:02x} is not a pickle instruction; the file is damaged")
            }
            Self::Protocol(p) => write!(f, "pickle protocol {p} is not known (0 to 5 are)"),
            Self::Code { opcode, name: Some(name) } => write!(
                f,
                "{opcode} asks for '{name}'; only plain data is read and code is never run"
            ),
            Self::Code { opcode, name: None } => {
                write!(f, "{opcode} would run code; only plain data is read")
            }
            Self::OutOfBand => {
                f.write_str("the data lies outside the file (an out-of-band buffer)")
            }
            Self::Limit { what, limit } => write!(f, "more than {limit} {what}; refused"),
            Self::Negative => f.write_str("a length or index is negative; the file is damaged"),
            Self::StackUnderflow => {
                f.write_str("a value is missing on the stack; the file is damaged")
            }
            Self::NoMark => f.write_str("a mark is missing on the stack; the file is damaged"),
            Self::OddItems => f.write_str("a dictionary key has no value; the file is damaged"),
            Self::WrongTarget { expected } => {
                write!(f, "the target is not {expected}; the file is damaged")
            }
            Self::MemoMissing(index) => {
                write!(f, "memo entry {index} was never stored; the file is damaged")
            }
            Self::BadText { what } => write!(f, "this is not valid {what}; the file is damaged"),
            Self::ChangedAfterUse => {
                f.write_str("an object is changed after it was complete, which no pickler does")
            }
            Self::Io(e) => write!(f, "reading failed: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

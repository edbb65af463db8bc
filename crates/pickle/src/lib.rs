//! A safe reader of plain-data pickles.
//!
//! A pickle is a program for a small stack machine. Most of its instructions build plain data
//! (numbers, text, lists, dictionaries); a few import and call code. This crate runs the former, in one
//! pass and without recursion, and refuses the latter with the byte offset and the name that was asked
//! for. Nothing of the file is ever executed.
//!
//! Objects are handles of eight bytes ([`Value`]) into [`Tables`]; what a file shares stays shared, so a
//! small file cannot unfold into a large one. A [`Sink`] may take over dictionaries and lists the moment
//! they are complete and keep them in a form of its own; this is how a history of a million entries is
//! read without a million dictionaries.
//!
//! The crate knows nothing of PyTorch, opens no files and has no dependencies.

#![forbid(unsafe_code)]

mod containers;
mod error;
mod intern;
mod limits;
mod machine;
mod memo;
mod ops;
mod quick;
mod rare;
mod read;
mod salvage;
mod sink;
mod tables;
mod text;
mod value;

pub use error::{Error, ErrorKind};
pub use intern::{IdTable, StrId, Strings, hash_bytes, hash_words};
pub use limits::Limits;
pub use read::{Document, Reader, read_slice};
pub use sink::{NoSink, Sink};
pub use tables::{Tables, View};
pub use value::{External, Value};

//! Snapshots made into other files.
//!
//! [`slice`](slice()) keeps a part of a history and the state at its end; [`redact`] takes out what names
//! people and machines; [`convert`] writes other programs' formats. Nothing here opens files or prints:
//! tables in, tables or bytes out.

#![forbid(unsafe_code)]

pub mod convert;
pub mod redact;
pub mod slice;
pub mod spans;

pub use redact::redact;
pub use slice::slice;

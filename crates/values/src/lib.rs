//! The log of what a program reads back from a GPU, in order: text, a JSON object a line
//! (`{"n": 0, "bytes": 4, "hex": "2a000000"}`), that a user can read and edit.
//!
//! The first pass of a rehearsal writes it, and so does the object that watches a program on a real card; the pass that
//! measures is answered from it.

mod line;
mod names;

pub use line::{Line, Lines, SMALL_COPY, breaks, read};
pub use names::claim;

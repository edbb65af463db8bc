//! Answers from recordings and texts.
//!
//! [`oom`] reads out-of-memory errors in any log and explains them. Nothing here prints, reads
//! files or looks at the environment; everything is a function from text to plain structs.

#![forbid(unsafe_code)]

pub mod oom;

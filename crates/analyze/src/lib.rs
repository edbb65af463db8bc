//! Answers from recordings and texts.
//!
//! [`oom`] reads out-of-memory errors in any log and explains them; [`peak`] says when a recording
//! held most and who held it. Nothing here prints, reads files or looks at the environment;
//! everything is a function from texts and snapshots to plain structs.

#![forbid(unsafe_code)]

pub mod failure;
pub mod leaks;
pub mod oom;
pub mod peak;

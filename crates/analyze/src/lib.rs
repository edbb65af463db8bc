//! Answers from recordings and texts.
//!
//! [`oom`] reads out-of-memory errors in any log and explains them; [`peak`] says when a recording
//! held most and who held it; [`figures`] are the few numbers that budgets are about; [`outliers`] are
//! ranks that stand out; [`diff`] says what
//! changed between two recordings. Nothing here prints, reads files or looks at the environment;
//! everything is a function from texts and snapshots to plain structs.

#![forbid(unsafe_code)]

pub mod diff;
pub mod failure;
pub mod figures;
pub mod leaks;
pub mod oom;
pub mod outliers;
pub mod peak;
pub mod stacks;

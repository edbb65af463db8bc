//! The command line as a user sees it: standard output, standard error and the exit status.
//!
//! Snapshots lie in `snapshots/`; after an intended change run the tests with `INSTA_UPDATE=always`
//! and read the difference.

#![allow(clippy::unwrap_used)] // what cannot go on has failed

mod check;
mod diff;
mod explain;
mod files;
mod help;
mod inspect;
mod leaks;
mod other_allocator;
mod probe;
mod rehearse;
mod replay;
mod room;
mod run;
mod schema;
mod stacks;
mod streams;
mod tune;
mod validate;

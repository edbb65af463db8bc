//! Reading and writing snapshots as a whole.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod attacks;
mod damage;
mod files;
mod made;
#[allow(dead_code, reason = "the pickle reader's tests use the rest")]
#[path = "../../../pickle/tests/it/py.rs"]
mod py;
mod recordings;
mod variations;
mod writing;

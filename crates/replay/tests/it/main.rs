//! Replays of real recordings, and of files that no allocator wrote.
#![allow(clippy::unwrap_used)]

mod changed_settings;
mod common;
mod drop_in;
mod hostile;
mod mid_run;
mod pools;
mod releases;
mod requests;
mod verify;
mod what_if;

//! The pickle reader as a whole: what it reads, what it refuses, and properties of both.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod plain;
mod properties;
mod py;
mod refused;
mod sinks;

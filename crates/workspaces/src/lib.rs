//! How much memory cuDNN asks for, known from measurements.
//!
//! A [`Tracker`] follows the calls that describe cuDNN's backend descriptors and gives every operation graph a
//! canonical [signature](Graph): what is computed, on which shapes, layouts and types, without addresses, handles
//! and the numbers that a program chose for its tensors. A [`Table`] maps such signatures, and the descriptors of
//! the older size queries, to the bytes that a real card answered. Where a convolution was not measured, [`estimate`]
//! knows what the measured ones have in common.
//!
//! Nothing here calls cuDNN, opens files or looks at the environment: callers hand in what was said and get answers.
//! Numbers of attributes and types are those of cuDNN's public headers.

#![forbid(unsafe_code)]

pub mod batch_norm;
mod canonical;
mod convolution;
pub mod ctc;
pub mod estimate;
pub mod fft;
mod header;
pub mod keys;
mod node;
pub mod records;
pub mod rnn;
pub mod rule;
pub mod shipped;
mod table;
mod tracker;

pub use convolution::{Convolution, Direction, Layout};
pub use header::{attribute, kind};
pub use node::{Node, Value, element_size};
pub use table::{Builder, Facts, Table, TableError};
pub use tracker::{Graph, Tracker};

//! Words shared by every crate of the workspace.
//!
//! Nothing here does I/O, and nothing here knows of files, allocators or reports: only byte sizes as
//! people write them, the actions of PyTorch's memory history, and PyTorch's version numbers.

#![forbid(unsafe_code)]

mod action;
mod size;
mod version;

pub use action::Action;
pub use size::{GIB, Human, KIB, MIB, ParseSizeError, parse_size};
pub use version::{ParseVersionError, TorchVersion};

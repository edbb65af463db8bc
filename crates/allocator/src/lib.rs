//! The drop-in allocator's engine: one heap a device over the CUDA driver, behind a table of C functions.
//!
//! `include/vramwise_engine.h` is the contract; [`table`] is its Rust side. The front (a thin shim that PyTorch sees)
//! owns everything that is PyTorch's: statistics objects, histories, filters, exceptions.
//!
//! - [`engine`]: the heaps, who owns which addresses, fork
//! - [`calls`]: the functions of the table
//! - [`settings`]: the text of settings
//!
//! A panic in a function of the table ends the process: a heap whose rules are broken must not hand out memory.
#![allow(unsafe_code)]

mod calls;
mod engine;
mod message;
mod settings;
mod table;

pub use calls::vramwise_engine_table;
pub use table::{Engine, VERSION};

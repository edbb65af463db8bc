//! The allocator's settings: what `PYTORCH_CUDA_ALLOC_CONF` means to a given PyTorch version.
//!
//! [`parse`] accepts what that release accepts and yields the settings that it would run with; a refusal
//! ([`SettingsError`]) says what is wrong, what PyTorch itself would do and what was probably meant. Nothing
//! here reads the environment: which variable a release listens to is the caller's business.

mod config;
mod dialect;
mod error;
mod keys;
mod lexer;
mod lint;
mod numbers;
mod parse;
mod suggest;

pub use config::{Backend, Config, ROUNDUP_BUCKETS};
pub use dialect::Dialect;
pub use error::{Problem, Reaction, SettingsError};
pub use lint::{Code, Lint};
pub use parse::{Parsed, parse, parse_onto};

#[cfg(test)]
mod tests;

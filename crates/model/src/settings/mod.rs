//! The allocator's settings: what `PYTORCH_CUDA_ALLOC_CONF` means to a given PyTorch version.
//!
//! [`parse`] accepts what that release accepts and yields the settings that it would run with; a
//! refusal ([`SettingsError`]) says what is wrong, what PyTorch itself would do and what was
//! probably meant. Nothing here reads the environment: which variable a release listens to is the
//! caller's business.

mod config;
mod dialect;
mod error;
mod keys;
mod lexer;
mod lint;
mod load;
mod numbers;
mod parse;
mod print;
mod reaction;
mod rewrite;
mod suggest;
mod variable;

pub use config::{Backend, Config, ROUNDUP_BUCKETS};
pub use dialect::Dialect;
pub use error::{Problem, Refusal, SettingsError};
pub use lint::{Code, Lint, lint, lint_for_card};
pub use parse::{Parsed, parse, parse_onto};
pub use reaction::Reaction;
pub use variable::{VARIABLES, lint_variable, variable_for};

#[cfg(test)]
mod tests;

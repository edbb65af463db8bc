//! What PyTorch itself does with a string that it refuses.

use std::fmt;

use vramwise_types::TorchVersion;

use super::dialect::{Dialect, ends_early_is_value_error};
use super::error::Problem;
use super::keys::{self, Shape};
use super::lexer::lex;
use super::load::walk_at_load;
use super::parse::Fault;

/// What PyTorch does with a string that it refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reaction {
    /// The process ends at `import torch` with an internal assertion that asks the user to report a
    /// bug.
    AbortsAtImport,
    /// An exception at the first use of CUDA (or from the call that sets the string).
    Raises {
        /// The Python exception.
        exception: &'static str,
        /// The gist of its text, enough to search a log for.
        gist: String,
    },
    /// An internal assertion, seen as a RuntimeError.
    InternalAssertion {
        /// The gist of its text.
        gist: String,
    },
    /// It reads past the end of its own list: a crash, or an error about an expected separator.
    ReadsPastTheEnd,
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reaction::AbortsAtImport => write!(
                f,
                "ends the process at 'import torch' with an internal assertion (\"Index out of bounds in ConfigTokenizer\")"
            ),
            Reaction::Raises { exception, gist } => {
                write!(f, "raises {exception} at the first use of CUDA (\"{gist}\")")
            }
            Reaction::InternalAssertion { gist } => {
                write!(f, "raises RuntimeError from an internal assertion (\"{gist}\")")
            }
            Reaction::ReadsPastTheEnd => {
                write!(f, "reads past the end of the list and crashes or raises RuntimeError")
            }
        }
    }
}

const TOO_SHORT: &str = "reached the end of the configuration string";

/// What that release does with a refused string.
pub(super) fn reaction(fault: &Fault, text: &str, version: TorchVersion) -> Reaction {
    let dialect = Dialect::of(version);
    if dialect == Dialect::Checked {
        return checked(fault);
    }
    let late = ends_early_is_value_error(version);
    if walk_at_load(&lex(text, dialect)).is_err() {
        return if late { value_error(TOO_SHORT) } else { Reaction::AbortsAtImport };
    }
    let option = fault.option.unwrap_or("option");
    match &fault.problem {
        Problem::UnknownOption { name, .. } => value_error(format!("Unrecognized key '{name}'")),
        Problem::EndsEarly | Problem::UnclosedList if late => value_error(TOO_SHORT),
        Problem::EndsEarly | Problem::UnclosedList => Reaction::InternalAssertion {
            gist: "Index out of bounds in ConfigTokenizer".to_owned(),
        },
        Problem::NotABoolean { found } => {
            value_error(format!("Expected 'True' or 'False' … but got '{found}'"))
        }
        Problem::NotANumber { .. } | Problem::NumberOutOfRange { .. } => {
            runtime_error(if reads_fraction(option) { "stod" } else { "stoull" })
        }
        other => shared(other, option, value_error),
    }
}

fn checked(fault: &Fault) -> Reaction {
    let option = fault.option.unwrap_or("option");
    match &fault.problem {
        Problem::UnknownOption { name, .. } => {
            runtime_error(format!("Unrecognized CachingAllocator option: {name}"))
        }
        Problem::UnclosedList => Reaction::ReadsPastTheEnd,
        Problem::EndsEarly => runtime_error(format!("expecting {option} value")),
        Problem::ExpectedSeparator { expected, .. } => {
            runtime_error(format!("Error parsing CachingAllocator settings, expected {expected}"))
        }
        Problem::NotABoolean { .. } => {
            runtime_error(format!("Expected a single True/False argument for {option}"))
        }
        Problem::NotANumber { .. } | Problem::NumberOutOfRange { .. } => {
            runtime_error(if reads_fraction(option) { "stod" } else { "stoi" })
        }
        other => shared(other, option, runtime_error),
    }
}

/// The problems whose text does not depend on the dialect.
fn shared(problem: &Problem, option: &str, raise: fn(String) -> Reaction) -> Reaction {
    match problem {
        Problem::TooSmall { .. } => raise(format!("{option} too small")),
        Problem::TooLarge { maximum, .. } => raise(format!("less than or equal to {maximum}")),
        Problem::OutsideInterval { closed: true, .. } => raise(format!("{option} is invalid")),
        Problem::OutsideInterval { .. } => raise("garbage_collect_threshold".to_owned()),
        Problem::NotAPowerOfTwo { .. } => raise("has to be power of 2".to_owned()),
        Problem::UnknownBackend { .. } => raise("Unknown allocator backend".to_owned()),
        Problem::BackendChanged { .. } => Reaction::InternalAssertion {
            gist: "Allocator backend parsed at runtime != allocator backend parsed at load time"
                .to_owned(),
        },
        other => raise(other.to_string()),
    }
}

fn reads_fraction(option: &str) -> bool {
    keys::named(option).is_some_and(|k| k.shape == Shape::Fraction)
}

fn value_error(gist: impl Into<String>) -> Reaction {
    Reaction::Raises { exception: "ValueError", gist: gist.into() }
}

fn runtime_error(gist: impl Into<String>) -> Reaction {
    Reaction::Raises { exception: "RuntimeError", gist: gist.into() }
}

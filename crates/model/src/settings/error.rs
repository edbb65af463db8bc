//! Why a settings string is refused, what PyTorch itself would do, and what was probably meant.

use std::fmt;

use vramwise_types::TorchVersion;

/// A settings string that the given PyTorch release refuses.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub struct SettingsError {
    /// The string as given.
    pub text: String,
    /// The release whose rules were applied.
    pub version: TorchVersion,
    /// What is wrong.
    pub problem: Problem,
    /// The option it concerns, where one was recognised.
    pub option: Option<String>,
    /// Byte offset in `text`.
    pub offset: usize,
    /// What PyTorch does with this string.
    pub reaction: Reaction,
    /// What was probably meant, in sentences, most important first.
    pub hints: Vec<String>,
    /// The whole string corrected, where that can be told; it parses under the same release.
    pub suggestion: Option<String>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {} of \"{}\"); ", self.problem, self.offset, shortened(&self.text))?;
        write!(f, "PyTorch {} {}", self.version, self.reaction)?;
        for hint in &self.hints {
            write!(f, "; {hint}")?;
        }
        match &self.suggestion {
            Some(s) if s.is_empty() => write!(f, "; leave the variable unset"),
            Some(s) => write!(f, "; write \"{s}\""),
            None => Ok(()),
        }
    }
}

/// At most 120 characters of the string, for messages.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is wrong with a settings string.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// No release knows this option, or only later ones do.
    UnknownOption {
        /// The key as PyTorch reads it, white space dropped.
        name: String,
        /// The release that brought it, if a later one knows it.
        since: Option<TorchVersion>,
    },
    /// The string ends where a value, or the separator before it, was expected.
    EndsEarly,
    /// Another character stands where a separator was expected (up to 2.9).
    ExpectedSeparator {
        /// The separator.
        expected: char,
        /// What stands there instead; nothing at the end of the string.
        found: Option<String>,
    },
    /// Something else than `True` or `False`.
    NotABoolean {
        /// What stands there.
        found: String,
    },
    /// No number.
    NotANumber {
        /// What stands there.
        found: String,
    },
    /// A number that the type cannot hold.
    NumberOutOfRange {
        /// What stands there.
        found: String,
    },
    /// Below the smallest legal value.
    TooSmall {
        /// The value read.
        value: u64,
        /// The smallest legal one.
        minimum: u64,
    },
    /// Above the largest legal value.
    TooLarge {
        /// The value read.
        value: u64,
        /// The largest legal one.
        maximum: u64,
    },
    /// A fraction outside its interval.
    OutsideInterval {
        /// What stands there.
        found: String,
        /// Whether 0 and 1 themselves are legal.
        closed: bool,
    },
    /// Not a power of two.
    NotAPowerOfTwo {
        /// The value read.
        value: u64,
        /// Whether 0 would have been legal too.
        zero_is_legal: bool,
    },
    /// A backend that does not exist.
    UnknownBackend {
        /// What stands there.
        found: String,
    },
    /// The backend was chosen when the library was loaded and cannot change.
    BackendChanged {
        /// The backend in force, as the option names it.
        loaded: &'static str,
        /// The backend asked for.
        asked: &'static str,
    },
    /// A list without its closing bracket.
    UnclosedList,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownOption { name, since: Some(since) } => {
                write!(f, "option '{}' needs PyTorch {since} or later", shortened(name))
            }
            Problem::UnknownOption { name, since: None } => {
                write!(f, "no option is called '{}'", shortened(name))
            }
            Problem::EndsEarly => write!(f, "the string ends where a value is expected"),
            Problem::ExpectedSeparator { expected, found: Some(found) } => {
                write!(f, "'{expected}' is expected, not '{}'", shortened(found))
            }
            Problem::ExpectedSeparator { expected, found: None } => {
                write!(f, "the string ends where '{expected}' is expected")
            }
            Problem::NotABoolean { found } => {
                write!(f, "the value has to be exactly True or False, not '{}'", shortened(found))
            }
            Problem::NotANumber { found } => write!(f, "'{}' is not a number", shortened(found)),
            Problem::NumberOutOfRange { found } => {
                write!(f, "'{}' is beyond the range that is read", shortened(found))
            }
            Problem::TooSmall { value, minimum } => {
                write!(f, "{value} is too small, {minimum} is the smallest legal value")
            }
            Problem::TooLarge { value, maximum } => {
                write!(f, "{value} is too large, {maximum} is the largest legal value")
            }
            Problem::OutsideInterval { found, closed: true } => {
                write!(f, "{} is not between 0 and 1", shortened(found))
            }
            Problem::OutsideInterval { found, closed: false } => {
                write!(f, "{} is not strictly between 0 and 1", shortened(found))
            }
            Problem::NotAPowerOfTwo { value, zero_is_legal: false } => {
                write!(f, "{value} is not a power of two")
            }
            Problem::NotAPowerOfTwo { value, zero_is_legal: true } => {
                write!(f, "{value} is neither a power of two nor 0")
            }
            Problem::UnknownBackend { found } => write!(
                f,
                "'{}' is no allocator backend; there are native and cudaMallocAsync",
                shortened(found)
            ),
            Problem::BackendChanged { loaded, asked } => write!(
                f,
                "the backend is {loaded} since the library was loaded and cannot become {asked}"
            ),
            Problem::UnclosedList => write!(f, "the list has no closing ']'"),
        }
    }
}

/// What PyTorch does with a string that it refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reaction {
    /// The process ends at `import torch` with an internal assertion that asks the user to report a bug.
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

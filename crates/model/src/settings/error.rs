//! Why a settings string is refused.

use std::fmt;
use std::ops::Deref;

use vramwise_types::TorchVersion;

use super::reaction::Reaction;

/// A settings string that the given PyTorch release refuses; the details are in the [`Refusal`]
/// behind it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(Box<Refusal>);

impl From<Refusal> for SettingsError {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(refusal))
    }
}

impl Deref for SettingsError {
    type Target = Refusal;

    fn deref(&self) -> &Refusal {
        &self.0
    }
}

/// Everything about a refused settings string.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
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
    /// The whole string corrected, where that can be told; it parses under the same release. An
    /// empty one means that nothing is left to set.
    pub suggestion: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(option) = &self.option {
            write!(f, "{option}: ")?;
        }
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

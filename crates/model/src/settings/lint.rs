//! Settings strings that are accepted and still doubtful.

use std::fmt;

/// A remark on a settings string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lint {
    /// What kind of remark.
    pub code: Code,
    /// The option it concerns.
    pub option: Option<String>,
    /// Byte offset in the string.
    pub offset: usize,
    /// The remark, a sentence.
    pub message: String,
}

/// The kinds of remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Code {
    /// An option given more than once.
    RepeatedOption,
    /// A separator that only newer releases let pass.
    WrongSeparator,
    /// Text behind a number that is not read.
    TextBehindNumber,
    /// A negative number that wraps around.
    NegativeWraps,
    /// A reserve that is ignored with a warning.
    ReserveIgnored,
    /// An option that the chosen backend ignores.
    IgnoredByBackend,
}

impl Code {
    /// The stable name, for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Code::RepeatedOption => "repeated-option",
            Code::WrongSeparator => "wrong-separator",
            Code::TextBehindNumber => "text-behind-number",
            Code::NegativeWraps => "negative-wraps",
            Code::ReserveIgnored => "reserve-ignored",
            Code::IgnoredByBackend => "ignored-by-backend",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

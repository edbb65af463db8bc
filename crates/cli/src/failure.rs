//! What a user reads when something cannot be done: what, where, and what to do about it.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use vramwise_trace::ReadError;

use crate::style::Style;
use crate::text::printable;

/// What kind of failure, for programs that tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Wrong usage, or something that the other kinds do not cover.
    #[default]
    Usage,
    /// The operating system could not do something with a file.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's number for it, where it has one.
        number: Option<i32>,
    },
    /// A file is no snapshot, or damaged beyond use.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where in its uncompressed content, in bytes, where that is known.
        offset: Option<u64>,
    },
    /// A snapshot without the history that the command needs.
    NoHistory {
        /// The file.
        path: PathBuf,
    },
    /// Settings that PyTorch would refuse.
    Settings {
        /// The whole string.
        text: String,
        /// Where in it, in bytes.
        offset: usize,
    },
    /// It was asked to stop.
    Stopped,
}

/// `EISDIR`.
const IS_A_DIRECTORY: i32 = 21;

/// The end of a command that could not do its work; the exit status is 2.
#[derive(Debug)]
pub struct Failure {
    kind: Box<Kind>,
    what: String,
    place: Option<String>,
    hint: Option<String>,
}

impl Failure {
    /// A failure in one sentence, without full stop.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { kind: Box::default(), what: what.into(), place: None, hint: None }
    }

    /// A failure of a library, with the reasons that it gives.
    pub(crate) fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut what = error.to_string();
        let mut source = error.source();
        while let Some(reason) = source {
            let text = reason.to_string();
            // Many errors repeat their source in their own text.
            if !what.contains(&text) {
                let _ = write!(what, ": {text}");
            }
            source = reason.source();
        }
        Self::new(what)
    }

    /// A failure of the operating system with a file.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {doing} {}: {error}", path.display()))
            .kind(Kind::Io { path: path.to_owned(), number: error.raw_os_error() })
    }

    /// A file that is no snapshot.
    pub(crate) fn unreadable(path: &Path, error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Io(error) if error.raw_os_error().is_some() => {
                Kind::Io { path: path.to_owned(), number: error.raw_os_error() }
            }
            ReadError::Directory => {
                Kind::Io { path: path.to_owned(), number: Some(IS_A_DIRECTORY) }
            }
            ReadError::Pickle { source, .. } => {
                Kind::Unreadable { path: path.to_owned(), offset: Some(source.offset) }
            }
            _ => Kind::Unreadable { path: path.to_owned(), offset: None },
        };
        let failure = Self::from_error(&error).about(crate::input::shown(path)).kind(kind);
        match &error {
            ReadError::OtherFormat { what, .. } if what.starts_with("plain text") => {
                failure.hint("vramwise explain reads logs")
            }
            ReadError::Directory => failure.hint("vramwise ranks compares all snapshots of one"),
            _ => failure,
        }
    }

    /// The end of a command that was asked to stop.
    pub(crate) fn stopped() -> Self {
        Self::new("stopped").kind(Kind::Stopped)
    }

    /// The same as another kind than [`Kind::Usage`].
    pub(crate) fn kind(mut self, kind: Kind) -> Self {
        self.kind = Box::new(kind);
        self
    }

    /// What kind of failure it is.
    pub fn what_kind(&self) -> &Kind {
        &self.kind
    }

    /// Where it happened, if that is known: a file, an event, a byte.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// What the user can do, if anything.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The sentence alone.
    pub fn sentence(&self) -> &str {
        &self.what
    }

    /// What it is about, put before the sentence: `a.pickle: the file ends early`.
    pub(crate) fn about(mut self, subject: impl std::fmt::Display) -> Self {
        self.what = format!("{subject}: {}", self.what);
        self
    }

    /// Where it happened: a file, an event, a byte.
    pub(crate) fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// What the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// All of it in one line, for a warning of a command that goes on.
    pub(crate) fn in_one_line(&self) -> String {
        let mut text = self.what.clone();
        if let Some(place) = &self.place {
            let _ = write!(text, " ({place})");
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "; {hint}");
        }
        text
    }

    /// The message as it is printed, with its last newline.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut text = format!("{} {}\n", style.bad("error:"), printable(&self.what));
        if let Some(place) = &self.place {
            let _ = writeln!(text, "  {}", printable(place));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "  {} {}", style.bold("hint:"), printable(hint));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let failure =
            Failure::new("the file ends early").at("a.pickle, byte 12").hint("copy it again");
        assert_eq!(
            failure.render(Style::PLAIN),
            "error: the file ends early\n  a.pickle, byte 12\n  hint: copy it again\n"
        );
    }

    #[test]
    fn a_failure_cannot_write_control_characters_to_the_terminal() {
        let text = Failure::new("no key '\u{1b}[2J'").render(Style::PLAIN);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn the_reasons_of_an_error_are_kept_once() {
        #[derive(Debug)]
        struct Outer(io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("cannot open it")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let failure = Failure::from_error(&Outer(io::Error::other("disk on fire")));
        assert_eq!(failure.render(Style::PLAIN), "error: cannot open it: disk on fire\n");
    }
}

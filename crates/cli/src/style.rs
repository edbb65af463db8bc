//! Colours, where they are wanted: one small palette for every report.

use clap::ValueEnum;

/// `--color`. Its values have no text of their own, which would make every help page longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColourChoice {
    #[default]
    Auto,
    Always,
    Never,
}

/// Paints words, or leaves them as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
}

/// What a word means, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Headings and what matters most.
    Bold,
    /// Better, exact, fits.
    Good,
    /// Worse, diverged, does not fit.
    Bad,
    /// Worth a look.
    Warn,
    /// Secondary.
    Dim,
}

impl Style {
    /// No colour at all.
    pub(crate) const PLAIN: Style = Style { colour: false };

    /// The style for a stream, as the user's choice, the environment and the stream have it.
    pub(crate) fn new(choice: ColourChoice, is_terminal: bool) -> Self {
        let colour = match choice {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => is_terminal && environment_allows(),
        };
        Self { colour }
    }

    /// `text` in a colour.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Bold => "1",
            Paint::Good => "32",
            Paint::Bad => "1;31",
            Paint::Warn => "33",
            Paint::Dim => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(Paint::Bold, text)
    }

    /// Something that is as it should be.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint(Paint::Good, text)
    }

    /// Something that is not.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint(Paint::Bad, text)
    }

    /// Something to look at.
    pub(crate) fn warn(self, text: &str) -> String {
        self.paint(Paint::Warn, text)
    }

    /// Something less important.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Paint::Dim, text)
    }
}

/// `NO_COLOR` (any value but the empty one) and a terminal that cannot.
fn environment_allows() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_colour_only_when_asked() {
        let painted = |choice, terminal| Style::new(choice, terminal).bad("x") != "x";
        assert!(painted(ColourChoice::Always, false));
        assert!(!painted(ColourChoice::Auto, false));
        assert!(!painted(ColourChoice::Never, true));
    }
}

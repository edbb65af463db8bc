//! What every command needs: the global options, the streams, and the place for the report.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::Global;
use crate::destination::Destination;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::style::Style;
use crate::text::printable;

/// The surroundings of one command.
pub(crate) struct Context {
    /// The options that every command has.
    pub(crate) global: Global,
    style: Style,
    width: Option<usize>,
    notes: Style,
    output: Option<Destination>,
}

impl Context {
    /// Looks at the streams, and checks that the report can go where it is asked to.
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let output = match &global.output {
            Some(path) if path.as_os_str() != "-" => Some(Destination::new(path, global.force)?),
            _ => None,
        };
        let on_terminal = output.is_none() && io::stdout().is_terminal();
        Ok(Self {
            style: Style::new(global.colour, on_terminal),
            width: if on_terminal { terminal_width() } else { None },
            notes: Style::new(global.colour, io::stderr().is_terminal()),
            output,
            global,
        })
    }

    /// How the report is painted.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Columns of the terminal that the report goes to, if it goes to one.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Fails if the report would overwrite one of the files that it is about.
    pub(crate) fn protect<'a>(
        &self,
        inputs: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<(), Failure> {
        match &self.output {
            Some(output) => output.distinct_from(inputs.into_iter().map(PathBuf::as_path)),
            None => Ok(()),
        }
    }

    /// Another file that the command writes.
    pub(crate) fn destination(&self, path: &Path) -> Result<Destination, Failure> {
        Destination::new(path, self.global.force)
    }

    /// Writes the report for people.
    pub(crate) fn report(&self, text: &str) -> Result<(), Failure> {
        if let Some(output) = &self.output {
            output.write(text.as_bytes())?;
            self.wrote(output.path());
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            // `vramwise … | head`: the reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
            Ok(()) => Ok(()),
        }
    }

    /// Writes the report for programs.
    pub(crate) fn report_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
        text.push('\n');
        self.report(&text)
    }

    /// Says that a file was written.
    pub(crate) fn wrote(&self, path: &Path) {
        if !self.global.quiet {
            self.say(&format!("wrote {}", path.display()));
        }
    }

    /// A warning; `-q` drops it.
    pub(crate) fn warn(&self, text: &str) {
        if !self.global.quiet {
            self.say_raw(&format!("{} {}", self.notes.warn("warning:"), printable(text)));
        }
    }

    /// A detail that only `-v` shows.
    pub(crate) fn note(&self, text: &str) {
        if self.global.verbose > 0 {
            self.say(text);
        }
    }

    /// A line of progress; `-q` drops it.
    pub(crate) fn say_trial(&self, text: &str) {
        if !self.global.quiet {
            self.say(text);
        }
    }

    /// A progress bar for work of `total` steps.
    pub(crate) fn progress(&self, doing: &str, total: u64) -> Progress {
        Progress::new(doing, total, !self.global.quiet && io::stderr().is_terminal())
    }

    fn say(&self, text: &str) {
        self.say_raw(&printable(text));
    }

    fn say_raw(&self, text: &str) {
        // A closed standard error is no reason to stop the work.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// The terminal's width, unless `COLUMNS` says otherwise.
fn terminal_width() -> Option<usize> {
    let from_environment = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    from_environment
        .filter(|columns| *columns > 0)
        .or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

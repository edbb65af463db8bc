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
        print(text.as_bytes())
    }

    /// Writes the report for programs.
    pub(crate) fn report_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.report(&pretty(value)?)
    }

    /// Where a command whose work is a file puts it: into the file of `-o`. To standard output only
    /// where that is asked (`-o -`), or nothing is and the file `is_text`.
    pub(crate) fn product(&self, is_text: bool) -> Result<Product<'_>, Failure> {
        match (&self.output, &self.global.output) {
            (Some(output), _) => Ok(Product(Some(output))),
            (None, Some(_)) if !self.global.json => Ok(Product(None)),
            (None, None) if is_text && !self.global.json => Ok(Product(None)),
            (None, Some(_)) => Err(Failure::new("--json and -o - would both print")
                .hint("name a file to write with -o")),
            (None, None) => {
                Err(Failure::new("name the file to write with -o").hint("-o - is standard output"))
            }
        }
    }

    /// Writes the file that a command is for, then says what it is: for programs as JSON, for people as
    /// `text`. Where the file goes to standard output, `-v` shows `text`.
    pub(crate) fn deliver(
        &self,
        product: &Product<'_>,
        content: &[u8],
        report: &impl Serialize,
        text: &str,
    ) -> Result<(), Failure> {
        let Some(output) = product.0 else {
            print(content)?;
            self.note(text.trim_end());
            return Ok(());
        };
        output.write(content)?;
        if self.global.json { print(pretty(report)?.as_bytes()) } else { print(text.as_bytes()) }
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

/// Where a command's file goes: a file, or standard output.
pub(crate) struct Product<'a>(Option<&'a Destination>);

impl Product<'_> {
    /// Its name as it is shown; `None` for standard output.
    pub(crate) fn name(&self) -> Option<String> {
        self.0.map(|output| output.path().display().to_string())
    }

    /// Whether its name ends so.
    pub(crate) fn ends_with(&self, ending: &str) -> bool {
        self.name().is_some_and(|name| name.ends_with(ending))
    }
}

fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// Writes to standard output.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // `vramwise … | head`: the reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// The terminal's width, unless `COLUMNS` says otherwise.
fn terminal_width() -> Option<usize> {
    let from_environment = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    from_environment
        .filter(|columns| *columns > 0)
        .or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

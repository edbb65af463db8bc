//! What every command needs: the global options, the streams, and the place for the report.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::args::Global;
use crate::destination::Destination;
use crate::embed::{Answer, Content, Given};
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
    /// Set where a program embeds the commands.
    embedded: Option<RefCell<Embedded>>,
    stop: Arc<AtomicBool>,
}

/// What a program gave, and what it will get.
struct Embedded {
    given: Vec<Given>,
    answer: Answer,
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
            embedded: None,
            stop: Arc::default(),
            global,
        })
    }

    /// The surroundings of a command that prints nothing.
    pub(crate) fn embedded(global: Global, given: Vec<Given>, stop: Arc<AtomicBool>) -> Self {
        Self {
            style: Style::PLAIN,
            width: None,
            notes: Style::PLAIN,
            output: None,
            embedded: Some(RefCell::new(Embedded { given, answer: Answer::default() })),
            stop,
            global,
        }
    }

    /// The report of a command that ran embedded.
    pub(crate) fn into_answer(self) -> Answer {
        self.embedded.map(RefCell::into_inner).map(|e| e.answer).unwrap_or_default()
    }

    /// Whether a program embeds the command.
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// What the embedding program gave under this name, once.
    pub(crate) fn given(&self, path: &Path) -> Option<Content> {
        let given = &mut self.embedded.as_ref()?.borrow_mut().given;
        let place = given.iter().position(|given| given.name == path)?;
        Some(given.remove(place).content)
    }

    /// Set where the work is not wanted any more.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
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

    /// Gives the report: as JSON where that is asked, else as `text`; an embedding program gets both.
    pub(crate) fn answer(
        &self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if let Some(embedded) = &self.embedded {
            let (json, text) = (pretty(report)?, text());
            let answer = &mut embedded.borrow_mut().answer;
            (answer.json, answer.text) = (json, text);
            return Ok(());
        }
        if self.global.json { self.report(&pretty(report)?) } else { self.report(&text()) }
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
        if let Some(embedded) = &self.embedded {
            embedded.borrow_mut().answer.warnings.push(printable(text).into_owned());
        } else if !self.global.quiet {
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
        Progress::new(
            doing,
            total,
            !self.global.quiet && self.embedded.is_none() && io::stderr().is_terminal(),
        )
    }

    fn say(&self, text: &str) {
        self.say_raw(&printable(text));
    }

    fn say_raw(&self, text: &str) {
        if self.embedded.is_some() {
            return;
        }
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

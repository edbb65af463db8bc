//! `vramwise redact FILE -o OUT`.

use std::path::PathBuf;

use clap::ValueHint;
use serde::Serialize;
use vramwise_files::redact::{RedactOptions, Redacted, redact};

use crate::Status;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  vramwise redact snapshot.pickle -o shared.pickle
  vramwise redact snapshot.pickle --functions --annotations -o shared.pickle

Taken out: folders and files of your own code, names of users and hosts, texts attached to events
(user_metadata). Each gets a pseudonym (dir1, file2.py, user1); the same one gets the same.
Kept: sizes, addresses, times, line numbers, paths inside well-known packages, and names of
functions and annotations unless the options say otherwise. The annotations that PyTorch makes by
itself (Optimizer.step#AdamW.step, ProfilerStep#7) are always kept: vramwise inspect tells the
optimizer's memory by them, and vramwise leaks the steps. Of an optimizer of your own the name goes.

Exit status: 0 the file was written, 2 unreadable input or wrong usage.";

/// Take out of a snapshot what names people, machines and projects.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The snapshot; - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Also replace the names of your own functions.
    #[arg(long)]
    functions: bool,
    /// Also replace the names of annotations, PyTorch's own excepted.
    #[arg(long)]
    annotations: bool,
}

/// The report; its keys are a promise to scripts.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    schema: u32,
    file: String,
    /// `null`: standard output.
    output: Option<String>,
    /// How many different ones were replaced.
    replaced: Replaced,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Replaced {
    folders: usize,
    files: usize,
    users: usize,
    hosts: usize,
    functions: usize,
    texts: usize,
}

impl From<Redacted> for Replaced {
    fn from(redacted: Redacted) -> Self {
        let Redacted { folders, files, users, hosts, functions, texts } = redacted;
        Self { folders, files, users, hosts, functions, texts }
    }
}

/// Reads, redacts, writes.
pub(crate) fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.protect([&args.file])?;
    let product = context.product(false)?;
    let snapshot = input::read(&args.file, context)?;
    let options = RedactOptions { functions: args.functions, annotations: args.annotations };
    let (redacted, counts) = redact(&snapshot, &options);
    let content = super::snapshot_bytes(&redacted, product.ends_with(".json"))?;
    let parts = [
        (counts.folders, "folder"),
        (counts.files, "file"),
        (counts.users, "user"),
        (counts.hosts, "host"),
        (counts.functions, "function"),
        (counts.texts, "text"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| counted(*n as u64, what)).collect();
    let what = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    let to = product.name().unwrap_or_else(|| "standard output".to_owned());
    let text = format!(
        "{}\nreplaced: {what}\n{}\n",
        crate::text::printable(&to),
        context.style().dim("look at it before you share it: strings FILE | less")
    );
    let report = Report {
        schema: 1,
        file: input::shown(&args.file),
        output: product.name(),
        replaced: counts.into(),
    };
    context.deliver(&product, &content, &report, &text)?;
    Ok(Status::Fine)
}

#[cfg(test)]
pub(crate) fn schema() -> schemars::Schema {
    crate::schema::of::<Report>()
}

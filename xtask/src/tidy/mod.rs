//! `cargo xtask tidy`: rules of the house that the compiler does not know.
//!
//! Each module is one rule with its reason. A rule gets the text of the files that git knows (or
//! would add) and gives back what it found; it changes nothing.

mod layers;
mod length;
mod licences;
mod links;
mod manifests;
mod purity;
mod words;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::{metadata::Metadata, shell};

/// A file of the repository.
pub(crate) struct SourceFile {
    /// Path from the root of the workspace, with `/`.
    pub(crate) path: String,
    /// Content; binary files are not listed.
    pub(crate) text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines before the unit tests, with their numbers.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_test_file = is_test_path(&self.path);
        self.text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line))
            .take_while(move |(_, line)| !is_test_file && *line != "#[cfg(test)]")
    }
}

/// Whether everything in the file is tests.
fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("/tests.rs")
}

/// Something that breaks a rule.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The file, and the line where it is known.
    place: String,
    /// What is wrong and what would be right.
    message: String,
}

impl Problem {
    fn file(path: &str, message: impl Into<String>) -> Self {
        Self { place: path.to_owned(), message: message.into() }
    }

    fn line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { place: format!("{path}:{line}"), message: message.into() }
    }
}

/// Checks every rule and fails if any is broken.
pub(crate) fn run() -> Result<()> {
    shell::say("\n$ xtask tidy");
    let files = files()?;
    let metadata = Metadata::load()?;
    let mut problems = Vec::new();
    problems.extend(length::check(&files));
    problems.extend(manifests::check(&files));
    problems.extend(layers::check(&metadata));
    problems.extend(purity::check(&files));
    problems.extend(licences::check(&metadata)?);
    problems.extend(words::check(&files));
    problems.extend(links::check(&files));
    for Problem { place, message } in &problems {
        shell::say(&format!("{place}: {message}"));
    }
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    shell::say(&format!("tidy: {} files, no problems", files.len()));
    Ok(())
}

/// Every text file that git tracks or would add.
fn files() -> Result<Vec<SourceFile>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = shell::output(&mut shell::command("git", &list))
        .context("tidy asks git which files belong to the project")?;
    let root = shell::root();
    let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        let full: PathBuf = root.join(path);
        // Listed but gone (deleted, not yet committed), a link or a submodule: nothing to read.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}

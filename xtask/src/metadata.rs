//! What `cargo metadata` says about the workspace, as far as the tasks need it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::shell;

/// The packages of the workspace and of everything that it depends on.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// Every package, dependencies included.
    pub(crate) packages: Vec<Package>,
    /// Ids of the packages that belong to the workspace.
    workspace_members: BTreeSet<String>,
    /// Where build output goes.
    pub(crate) target_directory: PathBuf,
}

/// One package.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// Name, as in `Cargo.toml`.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    id: String,
    /// SPDX expression, where the package states one.
    pub(crate) license: Option<String>,
    /// Path of its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// What it asks for.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A line of a package's dependency tables.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    /// Name of the package asked for.
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self> {
        let text = shell::output(&mut shell::cargo(&["metadata", "--format-version", "1"]))?;
        serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")
    }

    /// The packages of the workspace, by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members: Vec<_> =
            self.packages.iter().filter(|p| self.workspace_members.contains(&p.id)).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// The packages that come from elsewhere, by name.
    pub(crate) fn foreign(&self) -> Vec<&Package> {
        let mut foreign: Vec<_> =
            self.packages.iter().filter(|p| !self.workspace_members.contains(&p.id)).collect();
        foreign.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        foreign
    }
}

//! Every crate takes its lints and its licence from the workspace, so that none is silently laxer.

use super::{Problem, SourceFile};

pub(super) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files {
        // cargo-fuzz needs nightly, so its package stands outside the workspace.
        let is_member =
            file.path.ends_with("/Cargo.toml") && !file.path.starts_with("fuzz/libfuzzer/");
        if !is_member {
            continue;
        }
        if !has(&file.text, "[lints]", "workspace = true") {
            problems.push(Problem::file(&file.path, "lacks `[lints]` with `workspace = true`"));
        }
        for key in ["license", "edition", "rust-version"] {
            if !has(&file.text, "[package]", &format!("{key}.workspace = true")) {
                let message = format!("lacks `{key}.workspace = true`");
                problems.push(Problem::file(&file.path, message));
            }
        }
    }
    problems
}

/// Whether `line` stands in the table `header`.
fn has(manifest: &str, header: &str, line: &str) -> bool {
    manifest
        .lines()
        .map(str::trim)
        .skip_while(|l| *l != header)
        .skip(1)
        .take_while(|l| !l.starts_with('['))
        .any(|l| l == line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn a_manifest_without_the_workspace_lints_is_told() {
        let package = "[package]\nlicense.workspace = true\nedition.workspace = true\n\
                       rust-version.workspace = true\n";
        let good = format!("{package}[lints]\nworkspace = true\n");
        assert!(check(&[file("crates/a/Cargo.toml", &good)]).is_empty());
        let bad = format!("{package}[lints.rust]\nworkspace = true\n");
        assert_eq!(check(&[file("crates/a/Cargo.toml", &bad)]).len(), 1);
        assert!(check(&[file("fuzz/libfuzzer/Cargo.toml", "")]).is_empty());
    }
}

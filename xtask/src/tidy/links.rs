//! What the documents point to exists: relative links, paths in backticks, and the sections of the
//! specification that comments cite.

use std::collections::BTreeSet;

use super::{Problem, SourceFile};

/// The index of the specification's sections.
const SPECIFICATION: &str = "docs/specification/README.md";

/// Documents whose backticked paths must exist (others show paths of a user's machine).
const MAPS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(super) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut exists: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        let mut path = file.path.as_str();
        exists.insert(path);
        while let Some((parent, _)) = path.rsplit_once('/') {
            exists.insert(parent);
            path = parent;
        }
    }
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        check_document(file, &exists, &mut problems);
    }
    check_sections(files, &mut problems);
    problems
}

fn check_document(file: &SourceFile, exists: &BTreeSet<&str>, problems: &mut Vec<Problem>) {
    for (number, line) in file.text.lines().enumerate() {
        for target in links(line) {
            let resolved = resolve(&file.path, target);
            // Binary files are not listed, so ask the file system about those.
            if !exists.contains(resolved.as_str()) && !crate::shell::root().join(&resolved).exists()
            {
                let message = format!("the link to `{target}` leads nowhere");
                problems.push(Problem::line(&file.path, number + 1, message));
            }
        }
        if !MAPS.contains(&file.path.as_str()) {
            continue;
        }
        for word in line.split('`').skip(1).step_by(2) {
            let path = word.trim_end_matches('/');
            let top = path.split('/').next().unwrap_or(path);
            let is_path = path.contains('/') && !path.contains([' ', '*', '<', ':']);
            if is_path && exists.contains(top) && !exists.contains(path) {
                let message = format!("names `{word}`, which does not exist");
                problems.push(Problem::line(&file.path, number + 1, message));
            }
        }
    }
}

/// The targets of the inline links in a line that are files.
fn links(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .collect()
}

/// The path that a link in the document `from` means, from the root of the workspace.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Every `specification §N.N` in a source file is in the index.
fn check_sections(files: &[SourceFile], problems: &mut Vec<Problem>) {
    let Some(index) = files.iter().find(|f| f.path == SPECIFICATION) else {
        problems.push(Problem::file(SPECIFICATION, "is missing"));
        return;
    };
    let known: BTreeSet<String> = index.text.lines().flat_map(sections).collect();
    for file in files.iter().filter(|f| f.is_rust()) {
        for (number, line) in file.text.lines().enumerate() {
            for section in sections(line).into_iter().filter(|s| !known.contains(s)) {
                let message = format!("cites §{section}, which {SPECIFICATION} does not list");
                problems.push(Problem::line(&file.path, number + 1, message));
            }
        }
    }
}

/// The section numbers that follow a `§` in a line: `6.3` in `see §6.3.`, both in `§2.2 and §3`.
fn sections(line: &str) -> Vec<String> {
    line.split('§')
        .skip(1)
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            rest[..end].trim_matches('.').to_owned()
        })
        .filter(|section| !section.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn told(files: &[SourceFile]) -> Vec<String> {
        check(files).into_iter().map(|p| p.message).collect()
    }

    #[test]
    fn dead_links_and_paths_are_told() {
        let index = || file(SPECIFICATION, "§1.2 sizes");
        let good = "[a](docs/specification/README.md#x), `docs/specification`, [w](https://x.y)";
        assert!(told(&[index(), file("ARCHITECTURE.md", good)]).is_empty());
        let bad = "[a](docs/gone.md) and `docs/gone/b.rs`";
        assert_eq!(told(&[index(), file("ARCHITECTURE.md", bad)]).len(), 2);
        assert_eq!(resolve("docs/a/b.md", "../c/./d.md"), "docs/c/d.md");
    }

    #[test]
    fn sections_that_the_index_lacks_are_told() {
        let index = || file(SPECIFICATION, "- §1.2 rounding\n- §6 expandable segments");
        assert!(told(&[index(), file("a.rs", "// specification §1.2, §6.")]).is_empty());
        assert_eq!(told(&[index(), file("a.rs", "// specification §1.3")]).len(), 1);
        assert_eq!(sections("§2.2 and §3; § 4"), ["2.2", "3"]);
    }
}

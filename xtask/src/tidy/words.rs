//! Words that have no place in the repository: unfinished code, silenced tests, paths of the
//! machine that a change was made on.

use super::{Problem, SourceFile};

/// A text that may not occur, in which files, and why. Split, so that this file does not contain it.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (".rs", concat!("todo", "!("), "is unfinished"),
    (".rs", concat!("unimplemented", "!("), "is unfinished"),
    (".rs", concat!("dbg", "!("), "is a debugging aid"),
    (".rs", concat!("#[", "ignore"), "silences a test"),
    (".py", concat!("pytest.mark.", "skip("), "silences a test"),
    ("", concat!("/wo", "rk/"), "is a path of one machine"),
    ("", concat!("../sha", "red"), "is a path outside the repository"),
];

/// Where paths of other machines are data: recorded stacks, and optional steps of the build machine.
const DATA: &[&str] = &["testdata/", ".ci/"];

pub(super) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| !DATA.iter().any(|data| f.path.starts_with(data))) {
        for (number, line) in file.text.lines().enumerate() {
            for (suffix, word, reason) in FORBIDDEN {
                if file.path.ends_with(suffix) && line.contains(word) {
                    let message = format!("`{word}` {reason}");
                    problems.push(Problem::line(&file.path, number + 1, message));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn unfinished_code_and_foreign_paths_are_told() {
        let unfinished = concat!("fn f() { todo", "!() }");
        assert_eq!(check(&[file("a.rs", unfinished)]).len(), 1);
        assert!(check(&[file("a.md", unfinished)]).is_empty());
        let path = concat!("see ../sha", "red/x");
        assert_eq!(check(&[file("a.md", path)]).len(), 1);
        assert!(check(&[file(".ci/run", path)]).is_empty());
    }
}

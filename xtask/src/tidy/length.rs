//! Files stay short enough to be read in one go: 400 lines of code, 800 with tests.

use super::{Problem, SourceFile, is_test_path};

/// Lines of code that a file may have, its unit tests not counted.
const CODE_LINES: usize = 400;
/// Lines that a file may have in all.
const ALL_LINES: usize = 800;

/// Files that may be longer, each with the reason.
const EXEMPT: &[(&str, &str)] = &[];

pub(super) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.is_rust() || f.path.ends_with(".py")) {
        if EXEMPT.iter().any(|(path, _)| *path == file.path) {
            continue;
        }
        let all = file.text.lines().count();
        let code = file.code_lines().count();
        if all > ALL_LINES {
            problems.push(Problem::file(&file.path, format!("{all} lines; at most {ALL_LINES}")));
        } else if code > CODE_LINES && !is_test_path(&file.path) {
            let message = format!("{code} lines before the tests; at most {CODE_LINES}: split it");
            problems.push(Problem::file(&file.path, message));
        }
    }
    for (path, _) in EXEMPT.iter().filter(|(path, _)| files.iter().all(|f| f.path != *path)) {
        problems.push(Problem::file(path, "is exempt from the length rule but does not exist"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn code_and_tests_are_counted_apart() {
        let code = "x\n".repeat(CODE_LINES);
        let tests = "#[cfg(test)]\n".to_owned() + &"t\n".repeat(ALL_LINES - CODE_LINES - 1);
        assert!(check(&[file("a.rs", &(code.clone() + &tests))]).is_empty());
        assert_eq!(check(&[file("a.rs", &(code.clone() + "x\n" + &tests))]).len(), 1);
        assert_eq!(check(&[file("a.rs", &(code + "x\n"))]).len(), 1);
        assert!(check(&[file("a/tests/it.rs", &"t\n".repeat(ALL_LINES))]).is_empty());
        assert_eq!(check(&[file("a/tests/it.rs", &"t\n".repeat(ALL_LINES + 1))]).len(), 1);
    }
}

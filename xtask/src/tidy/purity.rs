//! The crates that decide something are pure: no file, clock, environment or randomness, and no
//! order that a hash gives. So the same input gives the same answer, on every machine and every run.
//!
//! Clippy refuses iteration over hash tables; this rule refuses the sources of impurity by name.

use super::{Problem, SourceFile};

/// Crates that must be pure.
const PURE: &[&str] =
    &["crates/types/src/", "crates/pickle/src/", "crates/model/src/", "crates/arena/src/"];

/// What a pure crate may not name.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
    "SystemTime",
    "Instant::",
    "File::open",
    "RandomState",
    "HashMap",
    "HashSet",
];

/// The places where `unsafe` may be allowed, each with the reason in the file.
const UNSAFE: &[&str] = &[
    "crates/trace/src/mmap.rs",
    // Shared objects that C code calls.
    "crates/emulator/src/lib.rs",
    "crates/nvrtc/src/lib.rs",
    "crates/probe/src/lib.rs",
    "crates/cuda/src/lib.rs",
    "crates/allocator/src/lib.rs",
];

pub(super) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let pure = PURE.iter().any(|room| file.path.starts_with(room));
        for (number, line) in file.code_lines() {
            let code = line.split("//").next().unwrap_or(line);
            if pure && let Some(name) = IMPURE.iter().find(|name| code.contains(**name)) {
                let message = format!("`{name}` in a pure crate: let the caller pass it in");
                problems.push(Problem::line(&file.path, number, message));
            }
            let opens_unsafe = code.contains("(unsafe_code)") && !code.contains("forbid");
            if opens_unsafe && !UNSAFE.contains(&file.path.as_str()) {
                let message = "allows unsafe code; only the places in xtask/src/tidy/purity.rs may";
                problems.push(Problem::line(&file.path, number, message));
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
    fn a_clock_in_the_model_is_told_but_not_in_its_tests_or_comments() {
        let clock = "let t = std::time::Instant::now();\n";
        assert_eq!(check(&[file("crates/model/src/a.rs", clock)]).len(), 1);
        assert!(check(&[file("crates/cli/src/a.rs", clock)]).is_empty());
        assert!(check(&[file("crates/model/src/a.rs", "// no std::time here\n")]).is_empty());
        let tests = format!("#[cfg(test)]\nmod tests {{\n{clock}}}\n");
        assert!(check(&[file("crates/model/src/a.rs", &tests)]).is_empty());
    }

    #[test]
    fn unsafe_is_allowed_in_the_named_places_only() {
        let line = concat!("#![expect(unsafe", "_code)]\n");
        assert_eq!(check(&[file("crates/cli/src/a.rs", line)]).len(), 1);
        assert!(check(&[file(UNSAFE[0], line)]).is_empty());
    }
}

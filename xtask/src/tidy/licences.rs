//! Only licences that fit `MIT OR Apache-2.0`: the list in deny.toml, read here so that the check
//! needs no tool that a fresh machine lacks.

use anyhow::{Context as _, Result, ensure};

use super::Problem;
use crate::{metadata::Metadata, shell};

pub(super) fn check(metadata: &Metadata) -> Result<Vec<Problem>> {
    let deny = std::fs::read_to_string(shell::root().join("deny.toml"))
        .context("cannot read deny.toml, which lists the licences")?;
    let allowed = allowed(&deny);
    ensure!(!allowed.is_empty(), "deny.toml lists no licence under `allow = [`");
    let mut problems = Vec::new();
    for package in metadata.foreign() {
        let place = format!("{} {}", package.name, package.version);
        match &package.license {
            None => problems.push(Problem::file(&place, "states no licence")),
            Some(expression) if !permits(expression, &allowed) => {
                let message = format!("licence `{expression}` is not among those in deny.toml");
                problems.push(Problem::file(&place, message));
            }
            Some(_) => {}
        }
    }
    Ok(problems)
}

/// The quoted words of the list `allow = [ … ]`.
fn allowed(deny: &str) -> Vec<&str> {
    let list = deny.split_once("\nallow = [").map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether an SPDX expression can be met with the allowed licences alone.
///
/// `AND` binds tighter than `OR`, parentheses group, and `WITH` belongs to the licence before it.
/// The `/` of old manifests means `OR`. What cannot be read is not permitted.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().collect::<Vec<_>>();
    words.reverse();
    let permitted = any_of(&mut words, allowed);
    permitted && words.is_empty()
}

/// `a OR b …`; the words are in reverse, so that the next one is the last.
fn any_of(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut permitted = all_of(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        permitted |= all_of(words, allowed);
    }
    permitted
}

fn all_of(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut permitted = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        permitted &= one(words, allowed);
    }
    permitted
}

fn one(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let Some(first) = words.pop() else { return false };
    if first == "(" {
        let permitted = any_of(words, allowed);
        return words.pop() == Some(")") && permitted;
    }
    if words.last() == Some(&"WITH") {
        words.pop();
        let Some(exception) = words.pop() else { return false };
        return allowed.contains(&format!("{first} WITH {exception}").as_str());
    }
    allowed.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_says() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let ok = |expression| permits(expression, &allowed);
        assert!(ok("MIT"));
        assert!(ok("GPL-3.0 OR MIT"));
        assert!(ok("MIT/GPL-3.0"));
        assert!(ok("(MIT OR GPL-3.0) AND Unicode-3.0"));
        assert!(ok("GPL-3.0 AND ISC OR MIT"));
        assert!(ok("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
        assert!(!ok("GPL-3.0"));
        assert!(!ok("MIT AND GPL-3.0"));
        assert!(!ok("(MIT OR GPL-3.0) AND GPL-3.0"));
        assert!(!ok("MIT WITH some-exception"));
        assert!(!ok("(MIT"));
        assert!(!ok("MIT MIT"));
        assert!(!ok(""));
    }

    #[test]
    fn the_list_is_read_from_deny_toml() {
        let deny = "[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n[bans]\nx = \"y\"\n";
        assert_eq!(allowed(deny), ["MIT", "ISC"]);
        assert!(allowed("").is_empty());
    }
}

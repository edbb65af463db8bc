//! The file of `--rules`: categories of the user's own.

use std::path::Path;

use serde::Deserialize;
use vramwise_analyze::peak::{CustomRule, SizeRange};

use crate::failure::Failure;
use crate::input;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    category: String,
    frame: Option<String>,
    annotation: Option<String>,
    min_size: Option<Size>,
    max_size: Option<Size>,
}

/// Bytes as a number, or as people write them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// Reads the rules in a file.
pub(in crate::commands) fn read(path: &Path) -> Result<Vec<CustomRule>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::io("read the rules in", path, &error))?;
    parse(&text).map_err(|why| {
        Failure::new(why).at(input::shown(path)).hint(
            "a rule is [[rule]] with category = \"NAME\" and at least one of frame, annotation, \
             min_size and max_size",
        )
    })
}

fn parse(text: &str) -> Result<Vec<CustomRule>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        // The error's own text is of several lines; a message is one.
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        format!("line {line}: {}", error.message().trim().replace('\n', ", "))
    })?;
    if file.rule.is_empty() {
        return Err("there is no rule in the file".to_owned());
    }
    file.rule.into_iter().enumerate().map(|(i, rule)| rule.checked(i + 1)).collect()
}

impl Rule {
    fn checked(self, number: usize) -> Result<CustomRule, String> {
        let bytes = |size: Option<Size>| match size {
            None => Ok(None),
            Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Size::Text(text)) => vramwise_types::parse_size(&text)
                .map(Some)
                .map_err(|error| format!("rule {number}: {error}")),
        };
        let size = SizeRange { least: bytes(self.min_size)?, most: bytes(self.max_size)? };
        let rule = CustomRule {
            category: self.category,
            frame: self.frame,
            annotation: self.annotation,
            size,
        };
        let empty = rule.frame.is_none() && rule.annotation.is_none();
        if rule.category.trim().is_empty() {
            return Err(format!("rule {number} names no category"));
        }
        if empty && size == SizeRange::default() {
            return Err(format!("rule {number} would hold for every block"));
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_mistakes_in_them_told() {
        let rules = parse(
            "[[rule]]\ncategory = \"kv cache\"\nframe = \"cache_utils.py\"\nmin_size = \"1MiB\"\n\
             [[rule]]\ncategory = \"small\"\nmax_size = 4096\n",
        )
        .unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0].size.least, Some(1 << 20));
        assert_eq!(rules[1].size.most, Some(4096));
        for wrong in [
            "",
            "[[rule]]\ncategory = \"x\"\n",
            "[[rule]]\nframe = \"x\"\n",
            "[[rule]]\ncategory = \" \"\nframe = \"x\"\n",
            "[[rule]]\ncategory = \"x\"\nmin_size = \"much\"\n",
            "[[rule]]\ncategory = \"x\"\ncolour = \"red\"\n",
            "no toml",
        ] {
            assert!(parse(wrong).is_err_and(|why| !why.contains('\n')), "{wrong}");
        }
        let why = parse("[[rule]]\ncategory = \"x\"\ncolour = 1\n").unwrap_err();
        assert!(why.starts_with("line ") && why.contains("colour"), "{why}");
    }
}

//! `cargo xtask report-types`: the reports as Python classes, from the JSON Schemas in `docs/schema`, which are
//! themselves made from the program's own types. So there is one definition of each report.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

use crate::shell;

/// Reports that Python gives, and the class of each.
const REPORTS: &[(&str, &str)] = &[
    ("diff", "DiffReport"),
    ("explain", "ExplainReport"),
    ("inspect", "InspectReport"),
    ("leaks", "LeaksReport"),
    ("replay", "ReplayReport"),
    ("tune", "TuneReport"),
    ("validate", "ValidateReport"),
];

/// Where they go.
const PACKAGE: &str = "python/vramwise/reports";

/// Writes the modules.
pub(crate) fn run() -> Result<()> {
    for (name, class) in REPORTS {
        let path = shell::root().join(PACKAGE).join(format!("{name}.py"));
        fs::write(&path, module(name, class)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One report as a module of Python.
fn module(name: &str, class: &str) -> Result<String> {
    let path = shell::root().join("docs/schema").join(format!("{name}.json"));
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let schema: Value = serde_json::from_str(&text)?;
    let mut out = format!(
        "\"\"\"The report of ``vramwise {name}``, written by ``cargo xtask report-types``.\"\"\"\n\n\
         from __future__ import annotations\n\n\
         from dataclasses import dataclass\n\
         from typing import Any\n\n\
         from ._base import BaseReport, _but_schema\n"
    );
    let empty = Map::new();
    let definitions = schema["$defs"].as_object().unwrap_or(&empty);
    let mut written = BTreeSet::new();
    // What a class uses stands before it.
    while written.len() < definitions.len() {
        let before = written.len();
        for (name, definition) in definitions {
            let ready = uses(definition).iter().all(|used| used == name || written.contains(used));
            if ready && written.insert(name.clone()) {
                one(&mut out, name, definition, None)?;
            }
        }
        ensure!(written.len() > before, "the definitions of {name} use each other in a circle");
    }
    one(&mut out, class, &schema, Some(name))?;
    Ok(out)
}

/// Names of the definitions that a definition uses.
fn uses(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("$ref", Value::String(path)) => vec![last(path)],
                _ => uses(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(uses).collect(),
        _ => Vec::new(),
    }
}

/// Writes one class. `report` is the command's name where the class is the report itself.
fn one(out: &mut String, class: &str, schema: &Value, report: Option<&str>) -> Result<()> {
    let fields = schema["properties"].as_object().context("a report is an object")?;
    let base = if report.is_some() { "(BaseReport)" } else { "" };
    let options = if report.is_some() { "frozen=True, repr=False" } else { "frozen=True" };
    write!(out, "\n\n@dataclass({options})\nclass {class}{base}:\n")?;
    let described = schema["description"].as_str();
    let about = match (described, report) {
        (Some(text), _) => one_line(text),
        (None, Some(name)) => {
            format!("What ``vramwise {name}`` reports; ``print`` shows it as the program does.")
        }
        (None, None) => String::new(),
    };
    if !about.is_empty() {
        write!(out, "    \"\"\"{about}\"\"\"\n\n")?;
    }
    for (key, value) in fields.iter().filter(|(key, _)| *key != "schema") {
        ensure!(!is_keyword(key), "{key} cannot be the name of a field in Python");
        let (annotation, _) = conversion(value, "")?;
        writeln!(out, "    {key}: {annotation}")?;
        if let Some(text) = value["description"].as_str() {
            writeln!(out, "    \"\"\"{}\"\"\"", one_line(text))?;
        }
    }
    let mut nested = Vec::new();
    for (key, value) in fields {
        let plain = format!("data[\"{key}\"]");
        let (_, converted) = conversion(value, &plain)?;
        if converted != plain {
            nested.push(format!("            \"{key}\": {converted},\n"));
        }
    }
    let (more, all) = match report {
        Some(_) => (", **base: Any", "_but_schema(data) | base"),
        None => ("", "data"),
    };
    write!(out, "\n    @classmethod\n    def _of(cls, data: dict[str, Any]{more}) -> {class}:\n")?;
    if nested.is_empty() {
        writeln!(out, "        return cls(**{all})")?;
    } else {
        writeln!(
            out,
            "        nested = {{\n{}        }}\n        return cls(**{all} | nested)",
            nested.concat()
        )?;
    }
    Ok(())
}

/// The type of a value in Python, and how it is made from `data`.
fn conversion(schema: &Value, data: &str) -> Result<(String, String)> {
    if let Some(path) = schema["$ref"].as_str() {
        let class = last(path);
        return Ok((class.clone(), format!("{class}._of({data})")));
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let [value, null] = options.as_slice() else { bail!("only `or null` is understood") };
        ensure!(null["type"] == "null", "only `or null` is understood");
        let (annotation, converted) = conversion(value, data)?;
        return Ok((
            format!("{annotation} | None"),
            format!("None if {data} is None else {converted}"),
        ));
    }
    let plain = |annotation: String| Ok((annotation, data.to_owned()));
    match &schema["type"] {
        Value::String(kind) if kind == "array" => array(schema, data),
        Value::String(kind) if kind == "object" => {
            let (value, converted) = conversion(&schema["additionalProperties"], "value")?;
            ensure!(converted == "value", "a map of objects is not understood");
            plain(format!("dict[str, {value}]"))
        }
        Value::String(kind) => plain(scalar(kind)?.to_owned()),
        Value::Array(kinds) => {
            let [Value::String(kind), null] = kinds.as_slice() else {
                bail!("only `or null` is understood")
            };
            ensure!(null == "null", "only `or null` is understood");
            if kind == "array" {
                let (annotation, converted) = array(schema, data)?;
                return Ok((
                    format!("{annotation} | None"),
                    format!("None if {data} is None else {converted}"),
                ));
            }
            plain(format!("{} | None", scalar(kind)?))
        }
        _ => bail!("a schema without a type: {schema}"),
    }
}

fn array(schema: &Value, data: &str) -> Result<(String, String)> {
    if let Some(items) = schema["prefixItems"].as_array() {
        let types: Result<Vec<String>> =
            items.iter().map(|item| Ok(conversion(item, "")?.0)).collect();
        return Ok((format!("tuple[{}]", types?.join(", ")), format!("tuple({data})")));
    }
    let (item, converted) = conversion(&schema["items"], "item")?;
    let made = if converted == "item" {
        data.to_owned()
    } else {
        format!("[{converted} for item in {data}]")
    };
    Ok((format!("list[{item}]"), made))
}

fn scalar(kind: &str) -> Result<&'static str> {
    Ok(match kind {
        "string" => "str",
        "integer" => "int",
        "number" => "float",
        "boolean" => "bool",
        "null" => "None",
        other => bail!("there is no type {other} here"),
    })
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "``")
}

fn is_keyword(key: &str) -> bool {
    ["from", "in", "is", "as", "class", "with", "global", "pass", "raise", "return"].contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_are_those_of_the_schemas() {
        let mut stale = Vec::new();
        for (name, class) in REPORTS {
            let path = shell::root().join(PACKAGE).join(format!("{name}.py"));
            if fs::read_to_string(path).unwrap_or_default() != module(name, class).unwrap() {
                stale.push(name);
            }
        }
        assert!(stale.is_empty(), "run `cargo xtask report-types`: {stale:?} are stale");
    }

    #[test]
    fn a_value_is_converted_as_its_schema_says() {
        let converted = |text: &str| conversion(&serde_json::from_str(text).unwrap(), "x").unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(converted(r#"{"type": ["integer", "null"]}"#), pair("int | None", "x"));
        assert_eq!(
            converted(r##"{"type": "array", "items": {"$ref": "#/$defs/Row"}}"##),
            pair("list[Row]", "[Row._of(item) for item in x]")
        );
        assert_eq!(
            converted(r##"{"anyOf": [{"$ref": "#/$defs/Row"}, {"type": "null"}]}"##),
            pair("Row | None", "None if x is None else Row._of(x)")
        );
        let nothing: Value = serde_json::from_str("{}").unwrap();
        assert!(conversion(&nothing, "x").is_err());
    }
}

//! What every command prints with `--json` is what its schema in `docs/schema` says.
//!
//! The checker knows the keywords that the schemas use, and fails at any other.

use serde_json::{Map, Value};

use crate::room::{Room, repository};

/// A document that says what the value at `path` breaks.
struct Checker<'a> {
    root: &'a Value,
}

const TOLD: [&str; 8] =
    ["$schema", "title", "description", "$defs", "format", "default", "minItems", "maxItems"];

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        let Some(keywords) = schema.as_object() else {
            return if schema == &Value::Bool(true) {
                Ok(())
            } else {
                Err(format!("{path}: never"))
            };
        };
        for (keyword, wanted) in keywords {
            let fine = match keyword.as_str() {
                "$ref" => {
                    let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                    let target = self.root.pointer(pointer).ok_or("a reference to nothing")?;
                    self.check(target, value, path)?;
                    true
                }
                "type" => is_of_type(wanted, value),
                "const" => wanted == value,
                "enum" => wanted.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().unwrap()),
                "required" => {
                    let has = |key: &Value| value.get(key.as_str().unwrap()).is_some();
                    wanted.as_array().unwrap().iter().all(has)
                }
                "anyOf" | "oneOf" => {
                    let branches = wanted.as_array().unwrap();
                    branches.iter().any(|s| self.check(s, value, path).is_ok())
                }
                "allOf" => {
                    for part in wanted.as_array().unwrap() {
                        self.check(part, value, path)?;
                    }
                    true
                }
                "items" => {
                    let first =
                        keywords.get("prefixItems").map_or(0, |p| p.as_array().unwrap().len());
                    for (i, item) in value.as_array().into_iter().flatten().enumerate().skip(first)
                    {
                        self.check(wanted, item, &format!("{path}[{i}]"))?;
                    }
                    true
                }
                "prefixItems" => {
                    let parts = wanted.as_array().unwrap().iter().enumerate();
                    // Of anything that is no list, it says nothing.
                    for (i, part) in parts.filter(|_| value.is_array()) {
                        self.check(part, &value[i], &format!("{path}[{i}]"))?;
                    }
                    true
                }
                "properties" => self.properties(wanted, keywords, value, path)?,
                "additionalProperties" => {
                    let known = keywords.get("properties").and_then(Value::as_object);
                    for (key, value) in value.as_object().into_iter().flatten() {
                        if known.is_none_or(|known| !known.contains_key(key)) {
                            self.check(wanted, value, &format!("{path}.{key}"))?;
                        }
                    }
                    true
                }
                told if TOLD.contains(&told) => true,
                other => return Err(format!("{path}: the checker does not know {other}")),
            };
            if !fine {
                return Err(format!("{path}: {keyword} is {wanted}, the value {value}"));
            }
        }
        Ok(())
    }

    /// Every key of a report must be in the schema: one that is not is not documented.
    fn properties(
        &self,
        wanted: &Value,
        keywords: &Map<String, Value>,
        value: &Value,
        path: &str,
    ) -> Result<bool, String> {
        let wanted = wanted.as_object().unwrap();
        for (key, value) in value.as_object().into_iter().flatten() {
            match wanted.get(key) {
                Some(schema) => self.check(schema, value, &format!("{path}.{key}"))?,
                None if keywords.contains_key("additionalProperties") => {}
                None if ["allOf", "anyOf", "$ref"].iter().any(|k| keywords.contains_key(*k)) => {}
                None => return Err(format!("{path}.{key} is not in the schema")),
            }
        }
        Ok(true)
    }
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => false,
    }
}

fn schema(name: &str) -> Value {
    let path = repository().join("docs/schema").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Holds a report against the schema of this name.
pub(crate) fn held_against(name: &str, report: &Value) -> Result<(), String> {
    let schema = schema(name);
    Checker { root: &schema }.check(&schema, report, "$")
}

#[test]
fn what_the_commands_print_is_what_their_schemas_say() {
    let room = Room::new("schema");
    let recording = |name: &str| {
        let path = repository().join(format!("testdata/snapshots/{name}.snapshot.pickle.gz"));
        path.to_str().unwrap().to_owned()
    };
    let (stacks, lstm) =
        (recording("oom_fragmented__default__stacks"), recording("lstm_varlen__default"));
    let (midrun, odd) = (recording("late_train__large12"), recording("public/synthetic-mosaic"));
    let leak = recording("leak__default__stacks");
    let pools = recording("graphs_shared__default");
    let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity \
               of 23.69 GiB of which 1.20 GiB is free. Process 7 has 22.40 GiB memory in use. Of the allocated \
               memory 20.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.";
    room.write("train.log", log);
    room.write("fine.log", "all is well");
    room.write("rules.toml", "[[rule]]\ncategory = \"mine\"\nmin_size = \"1MiB\"\n");
    for (name, args) in [
        ("validate", vec!["validate", &stacks]),
        ("validate", vec!["validate", &odd]),
        ("replay", vec!["replay", &stacks]),
        ("replay", vec!["replay", &odd]),
        ("replay", vec!["replay", &lstm, "--conf", "expandable_segments:True"]),
        ("tune", vec!["tune", &lstm, "--candidates", "4"]),
        ("tune-refused", vec!["tune", &odd]),
        ("inspect", vec!["inspect", &stacks]),
        ("inspect", vec!["inspect", &midrun, "--by", "size"]),
        ("inspect", vec!["inspect", &lstm, "--by", "category", "-v"]),
        ("inspect", vec!["inspect", &pools, "--by", "pool", "--at", "end"]),
        ("explain", vec!["explain", "train.log"]),
        ("explain", vec!["explain", "fine.log"]),
        ("explain", vec!["explain", &stacks, &lstm]),
        ("explain", vec!["explain", "train.log", "absent.log"]),
        ("leaks", vec!["leaks", &leak, &odd]),
        ("leaks", vec!["leaks", &leak, "absent.pickle"]),
        ("devices", vec!["devices"]),
        ("devices-card", vec!["devices", "h200"]),
        ("devices-card", vec!["devices", "rtx4090"]),
        ("diff", vec!["diff", &lstm, &stacks]),
        ("diff", vec!["diff", &lstm, &stacks, "--by", "category"]),
        ("diff", vec!["diff", &lstm, &stacks, "--by", "category", "--rules", "rules.toml"]),
        (
            "check",
            vec![
                "check",
                &stacks,
                &midrun,
                "--max-peak-reserved",
                "1GiB",
                "--max-fragmentation",
                "1%",
            ],
        ),
        ("check", vec!["check", &lstm, "--baseline", &stacks]),
        ("check", vec!["check", &odd, "absent.pickle", "--max-peak-reserved", "1GiB"]),
        ("check", vec!["check", &leak, "--max-growth-per-step", "0"]),
        ("ranks", vec!["ranks", &stacks, &lstm, &lstm, &lstm]),
        ("redact", vec!["redact", &stacks, "-o", "redacted"]),
        ("slice", vec!["slice", &stacks, "--to", "100", "-o", "sliced"]),
        ("convert", vec!["convert", &stacks, "--to", "folded", "-o", "folded"]),
        ("convert", vec!["convert", &stacks, "--to", "csv", "-o", "csv"]),
    ] {
        let mut command = room.vramwise(&args);
        let output = command.arg("--json").env_remove("GITHUB_STEP_SUMMARY").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {told}"));
        assert_eq!(report["schema"], 1, "{args:?}");
        assert_eq!(held_against(name, &report), Ok(()), "{args:?}");
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let schema = schema("check");
    let checker = Checker { root: &schema };
    let good = serde_json::json!({"schema": 1, "passed": true, "failed_checks": 0, "checks": [], "unreadable": []});
    assert_eq!(checker.check(&schema, &good, "$"), Ok(()));
    for (key, value) in
        [("passed", "yes".into()), ("failed_checks", (-1).into()), ("more", 1.into())]
    {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(checker.check(&schema, &bad, "$").is_err(), "{key}");
    }
}

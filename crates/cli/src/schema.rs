//! JSON Schemas of the reports, generated from their types and kept in `docs/schema`.
//!
//! After an intended change of a report run the tests with `INSTA_UPDATE=always` and read the difference.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::commands::{
    check, convert, devices, diff, explain, fit, inspect, leaks, probe, ranks, redact, rehearse,
    replay, slice, tune, validate,
};

/// The schema of a report as it is written.
pub(crate) fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[test]
fn the_schemas_in_the_documentation_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let update = std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always");
    let mut stale = Vec::new();
    for (name, mut schema) in [
        ("check", check::schema()),
        ("convert", convert::schema()),
        ("devices", devices::schema()),
        ("devices-card", devices::schema_card()),
        ("diff", diff::schema()),
        ("explain", explain::schema()),
        ("fit", fit::schema()),
        ("inspect", inspect::schema()),
        ("leaks", leaks::schema()),
        ("probe", probe::schema()),
        ("probe-values", probe::schema_of_values()),
        ("ranks", ranks::schema()),
        ("redact", redact::schema()),
        ("rehearse", rehearse::schema()),
        ("rehearse-compare", rehearse::schema_compared()),
        ("replay", replay::schema()),
        ("slice", slice::schema()),
        ("tune", tune::schema()),
        ("tune-refused", tune::schema_refused()),
        ("validate", validate::schema()),
    ] {
        schema.insert("title".to_owned(), format!("vramwise {name} --json").into());
        let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
        text.push('\n');
        let path = folder.join(format!("{name}.json"));
        if update {
            std::fs::create_dir_all(&folder).expect("docs can be written");
            std::fs::write(&path, &text).expect("docs can be written");
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != text {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "run with INSTA_UPDATE=always: the schemas of {stale:?} are stale");
}

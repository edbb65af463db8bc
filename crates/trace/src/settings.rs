//! `allocator_settings`.

use vramwise_pickle::{Tables, Value, View};

use crate::snapshot::RecordedSettings;

/// Characters of a value that is kept as text.
const MAX_TEXT: usize = 200;

/// Reads the dictionary; `None` where it is none or empty.
pub(crate) fn read(value: Value, tables: &Tables) -> Option<RecordedSettings> {
    let mut settings = RecordedSettings::default();
    let mut any = false;
    for (key, value) in tables.pairs(value)? {
        let Some(key) = tables.str(key) else { continue };
        any = true;
        match (key, tables.view(value)) {
            ("max_split_size", View::Int(n)) => settings.max_split_size = limited(n),
            ("garbage_collection_threshold", View::Float(x)) => {
                settings.garbage_collection_threshold = x;
            }
            ("garbage_collection_threshold", View::Int(n)) => {
                settings.garbage_collection_threshold = n as f64;
            }
            ("expandable_segments", View::Bool(b)) => settings.expandable_segments = b,
            ("expandable_segments", View::Int(n)) => settings.expandable_segments = n != 0,
            ("roundup_power2_divisions", View::Dict(_)) => {
                settings.roundup_power2_divisions = divisions(value, tables);
            }
            (_, View::Str(conf)) if is_conf(key) && settings.conf.is_empty() => {
                settings.conf = conf.into();
            }
            _ => settings.other.push((key.into(), text(value, tables))),
        }
    }
    any.then_some(settings)
}

/// Whether a key holds the settings string: `PYTORCH_CUDA_ALLOC_CONF` or a relative of it.
pub(crate) fn is_conf(key: &str) -> bool {
    key.starts_with("PYTORCH_") && key.ends_with("ALLOC_CONF")
}

/// −1 and 2^64 − 1 both mean "no limit".
fn limited(n: i128) -> Option<u64> {
    u64::try_from(n).ok().filter(|n| *n < i64::MAX as u64)
}

fn divisions(value: Value, tables: &Tables) -> Vec<(u64, u64)> {
    let number = |v| match tables.view(v) {
        View::Str(text) => text.parse().ok(),
        View::Int(n) => u64::try_from(n).ok(),
        _ => None,
    };
    let pairs = tables.pairs(value).into_iter().flatten();
    let mut all: Vec<_> = pairs.filter_map(|(k, v)| Some((number(k)?, number(v)?))).collect();
    all.sort_by_key(|(class, _)| *class);
    all
}

/// A value that has no field of its own, as text.
fn text(value: Value, tables: &Tables) -> String {
    match tables.view(value) {
        View::None => "None".into(),
        View::Bool(true) => "True".into(),
        View::Bool(false) => "False".into(),
        View::Int(n) => n.to_string(),
        View::Float(x) => x.to_string(),
        View::Str(text) => text.chars().take(MAX_TEXT).collect(),
        other => format!("({})", other.type_name()),
    }
}

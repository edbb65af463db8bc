//! `vramwise_recorder`: what the recorder of vramwise's Python package says of a file that it wrote.

use vramwise_pickle::{Tables, Value, View};

use crate::settings;
use crate::snapshot::{RecorderNote, SettingsBefore, SettingsChanges};

/// The key.
pub(crate) const KEY: &str = "vramwise_recorder";
/// Steps that are kept, as many as the recorder writes; a file can claim any number.
const MOST_STEPS: usize = 100;
/// Changes of settings that are kept, likewise.
const MOST_CHANGES: usize = 1000;

/// Reads the dictionary; `None` where it is none.
pub(crate) fn read(value: Value, tables: &Tables) -> Option<RecorderNote> {
    let mut note = RecorderNote::default();
    for (key, value) in tables.pairs(value)? {
        match tables.str(key) {
            Some("steps_with_stacks") => note.steps_with_stacks = steps(value, tables),
            Some("settings") => note.settings = changes(value, tables),
            _ => {}
        }
    }
    Some(note)
}

fn steps(value: Value, tables: &Tables) -> Option<Vec<u64>> {
    let items = tables.sequence(value)?;
    Some(items.iter().take(MOST_STEPS).filter_map(|v| number(*v, tables)).collect())
}

/// `None` where no change is named.
fn changes(value: Value, tables: &Tables) -> Option<SettingsChanges> {
    let mut found = SettingsChanges::default();
    for (key, value) in tables.pairs(value)? {
        match (tables.str(key), tables.view(value)) {
            (Some("before"), View::Str(text)) => found.before = SettingsBefore::Text(text.into()),
            (Some("before"), _) => {
                if let Some(values) = settings::read(value, tables) {
                    found.before = SettingsBefore::Values(values);
                }
            }
            (Some("changes"), _) => {
                let items = tables.sequence(value)?;
                let one = |item: &Value| change(*item, tables);
                found.changes = items.iter().take(MOST_CHANGES).filter_map(one).collect();
            }
            _ => {}
        }
    }
    found.changes.sort_by_key(|(time, _)| *time);
    (!found.changes.is_empty()).then_some(found)
}

fn change(value: Value, tables: &Tables) -> Option<(u64, String)> {
    let (mut time, mut conf) = (None, None);
    for (key, value) in tables.pairs(value)? {
        match (tables.str(key), tables.view(value)) {
            (Some("time_us"), _) => time = number(value, tables),
            (Some("conf"), View::Str(text)) => conf = Some(text.to_owned()),
            _ => {}
        }
    }
    Some((time?, conf?))
}

fn number(value: Value, tables: &Tables) -> Option<u64> {
    match tables.view(value) {
        View::Int(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

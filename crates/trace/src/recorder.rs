//! `vramwise_recorder`: what the recorder of vramwise's Python package says of a file that it wrote.

use vramwise_pickle::{Tables, Value, View};

use crate::snapshot::RecorderNote;

/// The key.
pub(crate) const KEY: &str = "vramwise_recorder";
/// Steps that are kept, as many as the recorder writes; a file can claim any number.
const MOST_STEPS: usize = 100;

/// Reads the dictionary; `None` where it is none.
pub(crate) fn read(value: Value, tables: &Tables) -> Option<RecorderNote> {
    let mut note = RecorderNote::default();
    for (key, value) in tables.pairs(value)? {
        if tables.str(key) == Some("steps_with_stacks") {
            note.steps_with_stacks = steps(value, tables);
        }
    }
    Some(note)
}

fn steps(value: Value, tables: &Tables) -> Option<Vec<u64>> {
    let number = |v: &Value| match tables.view(*v) {
        View::Int(n) => u64::try_from(n).ok(),
        _ => None,
    };
    let items = tables.sequence(value)?;
    Some(items.iter().take(MOST_STEPS).filter_map(number).collect())
}

//! The table of this card and library, and the count of what it knew.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::json;
use vramwise_workspaces::Table;

use super::plans::Seen;
use super::{NOT_SUPPORTED, real};
use crate::machine;

/// Signatures that the report lists at most.
const LISTED: usize = 50;

#[derive(Default)]
struct Count {
    measured: u64,
    unmeasured: u64,
    /// What was not measured.
    signatures: BTreeSet<String>,
}

static COUNT: Mutex<Option<Count>> = Mutex::new(None);

fn count() -> MutexGuard<'static, Option<Count>> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table that the rehearsal names, if it is one of this card.
pub(super) fn table() -> Option<&'static Table> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    TABLE.get_or_init(load).as_ref()
}

fn load() -> Option<Table> {
    let (path, card) = {
        let machine = machine::lock();
        (machine.config.workspaces.clone()?, machine.config.profile.name.clone())
    };
    let read = std::fs::read(&path).map_err(|e| e.to_string());
    match read.and_then(|bytes| Table::from_bytes(&bytes).map_err(|e| e.to_string())) {
        Ok(table) if table.facts().gpu == card => Some(table),
        Ok(table) => {
            note(format!(
                "{}: workspaces of {}, not of {card}; they are not used",
                path.display(),
                table.facts().gpu
            ));
            None
        }
        Err(why) => {
            note(format!("{}: {why}", path.display()));
            None
        }
    }
}

/// Whether the table was measured with the cuDNN that this process uses.
pub(super) fn same_library() -> bool {
    static SAME: OnceLock<bool> = OnceLock::new();
    *SAME.get_or_init(|| {
        let Some(table) = table() else { return false };
        let (ours, theirs) = (real::version(), table.facts().cudnn as usize);
        if ours != theirs {
            note(format!(
                "cuDNN is {ours}, workspaces were measured with {theirs}: they may differ"
            ));
        }
        ours == theirs
    })
}

/// A remark for the report, once.
pub(super) fn note(text: String) {
    machine::lock().note(text);
}

/// A convolution's first plan was decided on.
pub(super) fn convolution(seen: &Seen) {
    if seen.measured && same_library() {
        count().get_or_insert_default().measured += 1;
    } else {
        guessed(&seen.graph);
    }
}

/// A size was answered that neither the table nor a sum knows.
pub(super) fn guessed(what: &str) {
    let mut guard = count();
    let count = guard.get_or_insert_default();
    count.unmeasured += 1;
    if count.signatures.len() < LISTED {
        count.signatures.insert(what.to_owned());
    }
}

/// Says that a function has no meaning here.
pub(super) fn unsupported(name: &str) -> i32 {
    note(format!(
        "{name} is not emulated: cuDNN's older interface for convolutions needs a device"
    ));
    NOT_SUPPORTED
}

/// The report's `convolutions`.
pub(crate) fn report() -> serde_json::Value {
    let guard = count();
    let empty = Count::default();
    let count = guard.as_ref().unwrap_or(&empty);
    json!({
        "measured": count.measured,
        "unmeasured": count.unmeasured,
        "unmeasured_signatures": count.signatures,
    })
}

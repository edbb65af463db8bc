//! What was seen, and the lines that say so.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use vramwise_workspaces::{Graph, Tracker};

/// A plan that was finalised, or refused.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) status: i32,
    pub(crate) workspace: u64,
    pub(crate) engine: i64,
    pub(crate) knobs: String,
}

#[derive(Default)]
struct Seen {
    plans: Vec<Plan>,
    /// Places of the first and the last plan that ran.
    first_run: Option<usize>,
    last_run: Option<usize>,
    /// Places of plans that were finalised and failed when they were run.
    failed: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tracker: Tracker,
    /// Of each live plan: its graph, and its place among the graph's plans.
    plans: FxHashMap<u64, (Arc<Graph>, usize)>,
    /// The configuration of each plan that is being described.
    configs: FxHashMap<u64, u64>,
    /// Since the last mark, by signature.
    seen: BTreeMap<String, Seen>,
    sizes: Vec<(String, Vec<u64>)>,
    known: FxHashSet<String>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

pub(crate) struct Guard(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Guard {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("made in state()")
    }
}

impl std::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("made in state()")
    }
}

/// The state, locked. Never held while the real library runs: it calls back into these functions.
pub(crate) fn state() -> Guard {
    let mut guard = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    guard.get_or_insert_default();
    Guard(guard)
}

impl State {
    pub(crate) fn config_of_plan(&mut self, plan: u64, config: u64) {
        self.configs.insert(plan, config);
    }

    /// The configuration of a plan, or 0. It is asked for once.
    pub(crate) fn take_config(&mut self, plan: u64) -> u64 {
        self.configs.remove(&plan).unwrap_or(0)
    }

    pub(crate) fn plan_finalized(&mut self, address: u64, plan: Plan) {
        let Some(graph) = self.tracker.graph(address) else { return };
        let seen = self.seen.entry(graph.signature.clone()).or_default();
        seen.plans.push(plan);
        let place = seen.plans.len() - 1;
        self.plans.insert(address, (graph, place));
    }

    pub(crate) fn plan_executed(&mut self, address: u64, status: i32) {
        let Some((graph, place)) = self.plans.get(&address) else { return };
        let Some(seen) = self.seen.get_mut(&graph.signature) else { return };
        if status == 0 {
            seen.first_run.get_or_insert(*place);
            seen.last_run = Some(*place);
        } else if !seen.failed.contains(place) {
            seen.failed.push(*place);
        }
    }

    pub(crate) fn destroyed(&mut self, address: u64) {
        self.tracker.destroy(address);
        self.plans.remove(&address);
    }

    pub(crate) fn size(&mut self, key: String, numbers: Vec<u64>) {
        if self.known.insert(key.clone()) {
            self.sizes.push((key, numbers));
        }
    }

    fn write(&mut self, label: &str) -> std::io::Result<()> {
        let (seen, sizes) = (std::mem::take(&mut self.seen), std::mem::take(&mut self.sizes));
        if seen.is_empty() && sizes.is_empty() {
            return Ok(());
        }
        let Some(path) = std::env::var_os("VRAMWISE_PROBE_OUT") else { return Ok(()) };
        let mut text = String::new();
        for (signature, seen) in seen {
            let plans: Vec<_> = seen
                .plans
                .iter()
                .map(|p| json!([p.status, p.workspace, p.engine, p.knobs]))
                .collect();
            let line = json!({"choice": label, "graph": signature, "plans": plans, "first": seen.first_run, "last": seen.last_run, "failed": seen.failed});
            text.push_str(&line.to_string());
            text.push('\n');
        }
        for (key, numbers) in sizes {
            text.push_str(&json!({"key": key, "numbers": numbers}).to_string());
            text.push('\n');
        }
        std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
    }
}

/// Writes what was seen since the last call; `label` says how PyTorch was told to choose. Returns 0, or 1 if it could
/// not be written.
///
/// # Safety
/// `label` is null or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramwise_probe_mark(label: *const c_char) -> i32 {
    let label = if label.is_null() {
        String::new()
    } else {
        // SAFETY: not null, and terminated, as the caller promises.
        unsafe { CStr::from_ptr(label) }.to_string_lossy().into_owned()
    };
    let written = state().write(&label);
    crate::turn::end();
    i32::from(written.is_err())
}

//! The report of `vramwise explain` for programs. The first event is repeated at the top level, for
//! scripts that expect one.

use serde::Serialize;
use vramwise_analyze::oom::{self, Amount};
use vramwise_model::settings::Lint;

use super::Explained;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    #[serde(flatten)]
    first: Event,
    events: Vec<Event>,
    settings: Vec<Settings>,
    torch_version: Option<String>,
}

/// One out-of-memory text.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Event {
    kind: &'static str,
    file: Option<String>,
    line: Option<usize>,
    rank: Option<u32>,
    times: usize,
    /// The releases of PyTorch that print such a text.
    printed_by: Option<String>,
    truncated: bool,
    numbers: Numbers,
    cause: &'static str,
    cause_text: &'static str,
    confidence: f64,
    why: Vec<String>,
    advice: Vec<Advice>,
    facts: Vec<Fact>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Numbers {
    tried_bytes: Option<u64>,
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    allocated_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    reserved_unallocated_bytes: Option<u64>,
    private_pool_bytes: Option<u64>,
    process_in_use_bytes: Option<u64>,
    allowed_bytes: Option<u64>,
    other_bytes: Option<u64>,
    gpu: Option<u32>,
    processes: Vec<Process>,
    /// Labels whose printed number was impossible and is null for that reason.
    impossible: Vec<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Process {
    pid: Option<u64>,
    bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Advice {
    action: String,
    evidence: String,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Fact {
    name: &'static str,
    text: &'static str,
    source: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Settings {
    file: String,
    line: usize,
    name: String,
    text: String,
    in_force: bool,
    remarks: Vec<Remark>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Remark {
    code: &'static str,
    offset: usize,
    text: String,
}

impl Report {
    pub(super) fn new(explained: &[Explained]) -> Self {
        let events = explained
            .iter()
            .flat_map(|e| e.report.explanations.iter().map(|x| Event::new(&e.file, x)))
            .collect();
        let first = explained
            .iter()
            .find_map(|e| e.report.primary().map(|x| Event::new(&e.file, x)))
            .unwrap_or_else(Event::none);
        let settings = explained
            .iter()
            .flat_map(|e| e.report.settings.iter().map(|s| Settings::new(&e.file, s)))
            .collect();
        let version = explained.iter().find_map(|e| e.report.torch_version);
        Self { schema: 1, first, events, settings, torch_version: version.map(|v| v.to_string()) }
    }
}

impl Event {
    fn new(file: &str, explanation: &oom::Explanation) -> Self {
        let event = &explanation.event;
        Self {
            kind: event.kind.name(),
            file: Some(file.to_owned()),
            line: Some(event.line),
            rank: event.rank,
            times: event.times,
            printed_by: event.age.map(|age| age.to_string()),
            truncated: event.cut,
            numbers: Numbers::new(&event.numbers),
            cause: explanation.cause.name(),
            cause_text: explanation.cause.sentence(),
            confidence: explanation.confidence,
            why: explanation.why.clone(),
            advice: explanation
                .advice
                .iter()
                .map(|a| Advice { action: a.action.clone(), evidence: a.evidence.clone() })
                .collect(),
            facts: explanation
                .facts
                .iter()
                .map(|f| Fact { name: f.name, text: f.says, source: f.source })
                .collect(),
        }
    }

    fn none() -> Self {
        Self {
            kind: "none",
            cause: "none_found",
            cause_text: "no out-of-memory error was found in the text",
            why: vec!["no known out-of-memory text occurs in it".to_owned()],
            ..Self::default()
        }
    }
}

impl Numbers {
    fn new(n: &oom::Numbers) -> Self {
        let bytes = |a: Option<Amount>| a.map(|a| a.bytes);
        Self {
            tried_bytes: bytes(n.tried),
            total_bytes: bytes(n.total),
            free_bytes: bytes(n.free),
            allocated_bytes: bytes(n.allocated),
            reserved_bytes: bytes(n.reserved),
            reserved_unallocated_bytes: bytes(n.reserved_unallocated),
            private_pool_bytes: bytes(n.private_pools),
            process_in_use_bytes: bytes(n.process_in_use),
            allowed_bytes: bytes(n.allowed),
            other_bytes: bytes(n.other),
            gpu: n.gpu,
            processes: n
                .processes
                .iter()
                .map(|p| Process { pid: p.pid, bytes: bytes(p.used) })
                .collect(),
            impossible: n.impossible.clone(),
        }
    }
}

impl Settings {
    fn new(file: &str, found: &oom::FoundSettings) -> Self {
        let remark =
            |l: &Lint| Remark { code: l.code.name(), offset: l.offset, text: l.message.clone() };
        Self {
            file: file.to_owned(),
            line: found.line,
            name: found.name.clone(),
            text: found.text.clone(),
            in_force: found.in_force,
            remarks: found.lints.iter().map(remark).collect(),
        }
    }
}

//! The report of `vramwise explain` for programs. The first event is repeated at the top level, for
//! scripts that expect one.

use serde::Serialize;
use vramwise_analyze::failure::Failure;
use vramwise_analyze::oom::{self, Amount};
use vramwise_model::settings::Lint;

use super::proof_json::{Failed, TrialReport, Verified};
use super::ranks::Ranks;
use super::text::unknown_words;
use super::{Explained, Found};
use crate::several::Unreadable;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    #[serde(flatten)]
    first: Event,
    events: Vec<Event>,
    /// Errors of logs that are not in `events`, whose list was full.
    unlisted: usize,
    settings: Vec<Settings>,
    torch_version: Option<String>,
    /// The devices of the snapshots among the files.
    snapshots: Vec<Verified>,
    /// Index into `events` of the one that was first in time, where that can be told.
    first_in_time: Option<usize>,
    /// The files that cannot be used; always empty where one was named.
    unreadable: Vec<Unreadable>,
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
    /// When it happened: microseconds since 1970 (of local time, where a log names no zone).
    time_us: Option<i64>,
    /// What the replay of a snapshot shows; null for a text.
    replay: Option<Failed>,
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
    /// Whether a replay proves it.
    proved: bool,
    trial: Option<TrialReport>,
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
    pub(super) fn new(
        explained: &[Explained],
        ranks: &Ranks,
        unreadable: Vec<Unreadable>,
        top: usize,
    ) -> Self {
        let mut events: Vec<Event> = Vec::new();
        let mut first = None;
        let mut snapshots = Vec::new();
        for one in explained {
            match &one.found {
                Found::Log(report) => {
                    let of = |x| Event::new(&one.file, x);
                    events.extend(report.explanations.iter().map(of));
                    first = first.or_else(|| report.primary().map(of));
                }
                Found::Snapshot(devices) => {
                    for device in devices {
                        snapshots.push(Verified::new(&one.file, device));
                        if let Some(failure) = &device.failure {
                            let event = Event::proved(&one.file, device.device, failure, top);
                            first.get_or_insert_with(|| event.clone());
                            events.push(event);
                        }
                    }
                }
            }
        }
        for (event, ran_out) in events.iter_mut().zip(&ranks.errors) {
            event.rank = ran_out.rank;
            event.time_us = ran_out.time.filter(|t| t.has_year).map(|t| t.time_us);
        }
        let logs = || {
            explained.iter().filter_map(|e| match &e.found {
                Found::Log(report) => Some((&e.file, report)),
                Found::Snapshot(_) => None,
            })
        };
        let settings = logs().flat_map(|(f, r)| r.settings.iter().map(|s| Settings::new(f, s)));
        let version = logs().find_map(|(_, r)| r.torch_version);
        let is_empty = logs().all(|(_, r)| r.is_empty);
        let unknown = logs().find_map(|(_, r)| r.unknown.as_ref());
        Self {
            schema: 1,
            first: first.unwrap_or_else(|| Event::none(snapshots.is_empty(), is_empty, unknown)),
            events,
            unlisted: logs().map(|(_, r)| r.unlisted).sum(),
            settings: settings.collect(),
            torch_version: version.map(|v| v.to_string()),
            snapshots,
            first_in_time: ranks.first,
            unreadable,
        }
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
                .map(|a| Advice {
                    action: a.action.clone(),
                    evidence: a.evidence.clone(),
                    proved: false,
                    trial: None,
                })
                .collect(),
            facts: explanation
                .facts
                .iter()
                .map(|f| Fact { name: f.name, text: f.says, source: f.source })
                .collect(),
            time_us: None,
            replay: None,
        }
    }

    /// A request of a snapshot that fails.
    fn proved(file: &str, device: u32, failure: &Failure, top: usize) -> Self {
        let a = &failure.account;
        let advice = failure.advice.iter().map(|a| Advice {
            action: a.action.clone(),
            evidence: a.evidence.clone(),
            proved: failure.proved && a.trial.as_ref().is_some_and(|t| t.passes),
            trial: a.trial.as_ref().map(TrialReport::from),
        });
        Self {
            // Snapshots do not say whose card it was; the caching allocator is the same on all.
            kind: "cuda",
            file: Some(file.to_owned()),
            times: 1,
            numbers: Numbers {
                tried_bytes: Some(a.segment),
                free_bytes: a.device_free,
                allocated_bytes: Some(a.allocated),
                reserved_bytes: Some(a.reserved),
                reserved_unallocated_bytes: Some(a.reserved.saturating_sub(a.allocated)),
                private_pool_bytes: Some(a.free_private),
                allowed_bytes: failure.limit.given.then_some(failure.limit.low),
                gpu: Some(device),
                ..Numbers::default()
            },
            cause: failure.cause.name(),
            cause_text: failure.cause.sentence(),
            confidence: failure.confidence,
            why: failure.why.clone(),
            advice: advice.collect(),
            replay: Some(Failed::new(failure, top)),
            ..Self::default()
        }
    }

    fn none(is_text: bool, is_empty: bool, unknown: Option<&oom::UnknownMention>) -> Self {
        let (text, why) = if is_text && is_empty {
            ("there is no text", "the file is empty")
        } else if is_text {
            (
                "no out-of-memory error was found in the text",
                "no known out-of-memory text occurs in it",
            )
        } else {
            ("no request runs out of memory", "every request of the recording finds memory")
        };
        Self {
            kind: "none",
            cause: "none_found",
            cause_text: text,
            why: std::iter::once(why.to_owned()).chain(unknown.map(unknown_words)).collect(),
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

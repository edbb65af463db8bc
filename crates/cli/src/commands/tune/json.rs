//! The report of `vramwise tune --json`; its keys are a promise to scripts.

use serde::Serialize;
use vramwise_model::settings;
use vramwise_tune::{Report as Found, TuneOptions};
use vramwise_types::{Human, TorchVersion};

use super::Input;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    files: Vec<FileReport>,
    torch_version: String,
    capacity_bytes: Option<u64>,
    baseline: Candidate,
    recommended: Recommended,
    gain_bytes: i64,
    gain_percent: f64,
    candidates: Vec<Candidate>,
    limit: Limit,
    /// The same programs under vramwise's own allocator.
    pub(super) drop_in: super::drop_in::DropInReport,
    load: Load,
    options: Vec<OptionReport>,
    runs_per_candidate: usize,
    assumptions: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileReport {
    file: String,
    device: u32,
    events: usize,
    allocs: u64,
    allocs_exact: u64,
    exact: bool,
    /// `pytorch`, or `vramwise` where that was in its place: then its blocks are not compared.
    recorded_allocator: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Candidate {
    conf: String,
    peak_reserved_bytes: u64,
    peak_reserved_bytes_range: (u64, u64),
    peak_allocated_bytes: u64,
    oom_rate: f64,
    largest_free_block_bytes: u64,
    inactive_split_bytes: u64,
    num_alloc_retries: u64,
    device_calls: DeviceCalls,
    device_call_ms: f64,
    smallest_capacity_bytes: Option<u64>,
    dominated: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeviceCalls {
    malloc: u64,
    free: u64,
    map: u64,
    unmap: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Recommended {
    #[serde(flatten)]
    candidate: Candidate,
    /// The line to put into the environment; null where nothing needs to be set.
    env: Option<String>,
    /// The same for other names of the variable that this version reads.
    env_alternatives: Vec<String>,
    changes_anything: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Limit {
    peak_live_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Load {
    kind: &'static str,
    why: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OptionReport {
    option: &'static str,
    tried: usize,
    best: Option<String>,
    best_change_bytes: i64,
    worst_change_bytes: i64,
    text: String,
}

impl Report {
    pub(super) fn new(options: &TuneOptions, inputs: &[Input], found: &Found) -> Self {
        let version = options.version;
        let baseline = &found.candidates[found.baseline];
        let best = &found.candidates[found.recommended];
        let gain = gain(baseline.worst_peak(), best.worst_peak());
        Self {
            schema: 1,
            files: inputs.iter().map(file).collect(),
            torch_version: version.to_string(),
            capacity_bytes: options.capacity,
            baseline: candidate(baseline),
            recommended: Recommended {
                candidate: candidate(best),
                env: env(&best.conf, version),
                env_alternatives: env_alternatives(&best.conf, version),
                changes_anything: found.recommended != found.baseline,
            },
            gain_bytes: gain.0,
            gain_percent: gain.1,
            candidates: found.candidates.iter().map(candidate).collect(),
            limit: Limit { peak_live_bytes: found.peak_live },
            drop_in: super::drop_in::DropInReport::new(options, inputs),
            load: Load { kind: found.load.kind.describe(), why: found.load.reasons() },
            options: found.effects.iter().map(option).collect(),
            runs_per_candidate: found.runs,
            assumptions: assumptions(inputs, found, options.capacity),
            warnings: inputs.iter().flat_map(|i| i.warnings.clone()).collect(),
        }
    }
}

/// Bytes and per cent saved.
#[allow(clippy::cast_precision_loss)] // a percentage
pub(super) fn gain(before: u64, after: u64) -> (i64, f64) {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let saved = signed(before) - signed(after);
    let percent = if before == 0 { 0.0 } else { saved as f64 * 100.0 / before as f64 };
    (saved, (percent * 100.0).round() / 100.0)
}

/// The variable that this version reads first, with the settings.
pub(super) fn env(conf: &str, version: TorchVersion) -> Option<String> {
    let variable = settings::variable_for(version);
    (!conf.is_empty()).then(|| format!("{variable}={conf}"))
}

/// The same under the other name, where this version reads it.
pub(super) fn env_alternatives(conf: &str, version: TorchVersion) -> Vec<String> {
    let known: &[&str] = if version.at_least_2(10) {
        &["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
    } else {
        &["PYTORCH_CUDA_ALLOC_CONF"]
    };
    let first = settings::variable_for(version);
    let others = known.iter().filter(|name| **name != first);
    if conf.is_empty() { Vec::new() } else { others.map(|v| format!("{v}={conf}")).collect() }
}

pub(super) fn assumptions(inputs: &[Input], found: &Found, capacity: Option<u64>) -> Vec<String> {
    let several = inputs.len() > 1;
    let of = |input: &Input| {
        let name = if several { format!("{}: ", input.file) } else { String::new() };
        input.recording.assumptions.iter().map(|a| format!("{name}{a}")).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = inputs.iter().flat_map(of).collect();
    all.extend(found.notes.iter().cloned());
    if several && capacity.is_none() {
        all.extend(inputs.iter().filter_map(|input| {
            let bytes = super::recorded_capacity(input)?;
            Some(format!(
                "{}: its failed request points to a capacity of {}, which holds for this file alone \
                 (--capacity sets one for all)",
                input.file,
                Human(bytes)
            ))
        }));
    }
    if inputs.iter().any(|input| !input.recording.ooms.is_empty()) {
        all.push(
            "the recorded program ran out of memory: its history shows what it did then, so that \
             figures hold up to the first failed request"
                .to_owned(),
        );
    }
    all.push(
        "the program asks for the same memory in the same order under every setting".to_owned(),
    );
    all
}

fn file(input: &Input) -> FileReport {
    let allocs = input.recording.agreement.allocs;
    FileReport {
        file: input.file.clone(),
        device: input.device,
        events: input.events,
        allocs: allocs.recorded,
        allocs_exact: allocs.exact,
        exact: input.recording.is_exact(),
        recorded_allocator: crate::input::allocator_name(input.recording.requests_only),
    }
}

fn candidate(c: &vramwise_tune::Candidate) -> Candidate {
    Candidate {
        conf: c.conf.clone(),
        peak_reserved_bytes: c.peak_reserved,
        peak_reserved_bytes_range: c.peak_reserved_range,
        peak_allocated_bytes: c.peak_allocated,
        oom_rate: c.oom_rate(),
        largest_free_block_bytes: c.largest_free_block,
        inactive_split_bytes: c.inactive_split,
        num_alloc_retries: c.retries,
        device_calls: DeviceCalls {
            malloc: c.device_calls.malloc,
            free: c.device_calls.free,
            map: c.device_calls.map,
            unmap: c.device_calls.unmap,
        },
        device_call_ms: (c.device_ms * 1000.0).round() / 1000.0,
        smallest_capacity_bytes: c.smallest_capacity,
        dominated: c.dominated,
    }
}

fn option(effect: &vramwise_tune::OptionEffect) -> OptionReport {
    OptionReport {
        option: effect.option,
        tried: effect.tried,
        best: effect.best.clone(),
        best_change_bytes: effect.best_change,
        worst_change_bytes: effect.worst_change,
        text: effect.sentence.clone(),
    }
}

/// Why nothing is recommended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Refusal {
    schema: u32,
    file: String,
    device: u32,
    recommended: Option<()>,
    error: String,
    allocs: u64,
    allocs_exact: u64,
    first_divergence_event: Option<usize>,
    assumptions: Vec<String>,
}

impl Refusal {
    pub(super) fn new(failed: &Input) -> Self {
        let recording = &failed.recording;
        let allocs = recording.agreement.allocs;
        Self {
            schema: 1,
            file: failed.file.clone(),
            device: failed.device,
            recommended: None,
            error: reason(failed),
            allocs: allocs.recorded,
            allocs_exact: allocs.exact,
            first_divergence_event: recording.first_divergence.as_ref().map(|d| d.event),
            assumptions: recording.assumptions.clone(),
        }
    }
}

/// Why a recording proves nothing, as a sentence.
pub(super) fn reason(failed: &Input) -> String {
    let recording = &failed.recording;
    if let Some(why) = &recording.impossible {
        return format!("this is no history of PyTorch's allocator: {why}");
    }
    match &recording.first_divergence {
        Some(d) if recording.requests_only => {
            format!(
                "its requests make no sense from event {} on: {}, {} ({})",
                d.event, d.expected, d.got, d.why
            )
        }
        Some(d) => format!(
            "the model parts from the recording at event {}: the recording has {}, the model {} ({})",
            d.event, d.expected, d.got, d.why
        ),
        None => "the model does not reproduce every entry of the recording".to_owned(),
    }
}

//! The report of `vramwise leaks --json`; its keys are a promise to scripts.

use serde::Serialize;
use vramwise_analyze::leaks::{DeviceLeaks, Filled, Leak, StepSource};

use super::Looked;
use crate::several::Unreadable;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    leaks_found: usize,
    files: Vec<File>,
    /// The files that cannot be used; always empty where one was named.
    unreadable: Vec<Unreadable>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    file: String,
    devices: Vec<Device>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Device {
    device: u32,
    events: usize,
    /// `marker`, `annotation`, `period` or `none`.
    steps_from: &'static str,
    /// The annotation, or the allocation that begins each step.
    steps_by: Option<String>,
    steps: usize,
    /// The first step, from 1, whose growth is counted; `null` where there are too few.
    first_counted_step: Option<usize>,
    /// Why earlier ones are not.
    left_out_reason: Option<String>,
    /// Whether there are too few steps to tell.
    too_few_steps: bool,
    /// Where only some of the steps were recorded with stacks; `null` where all are alike.
    some_stacks: Option<SomeStacksReport>,
    leaks: Vec<LeakReport>,
    filled: Vec<FilledReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SomeStacksReport {
    /// How many of `steps` were.
    steps_with_stacks: usize,
    /// `stack`: growth is looked for in those; `size`: in all, by the sizes of blocks.
    told_apart_by: &'static str,
    /// The same as a sentence.
    note: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeakReport {
    place: String,
    /// Innermost first.
    frames: Vec<String>,
    bytes_per_step: u64,
    blocks_per_step: f64,
    steps: usize,
    steps_grown: usize,
    bytes: u64,
    confidence: f64,
    /// Bytes live at the end of each step.
    series_bytes: Vec<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FilledReport {
    place: String,
    bytes: u64,
    last_step: usize,
}

impl Report {
    pub(super) fn new(looked: &[Looked], unreadable: Vec<Unreadable>) -> Self {
        let file = |l: &Looked| File {
            file: l.file.clone(),
            devices: l.devices.iter().map(Device::new).collect(),
        };
        Self {
            schema: 1,
            leaks_found: looked.iter().flat_map(|l| &l.devices).map(|d| d.leaks.len()).sum(),
            files: looked.iter().map(file).collect(),
            unreadable,
        }
    }
}

impl Device {
    fn new(d: &DeviceLeaks) -> Self {
        let (steps_from, steps_by) = match &d.steps.source {
            StepSource::Marker(name) => ("marker", Some(name.clone())),
            StepSource::Annotation(name) => ("annotation", Some(name.clone())),
            StepSource::Period(by) => ("period", Some(by.clone())),
            StepSource::None => ("none", None),
        };
        Self {
            device: d.device,
            events: d.events,
            steps_from,
            steps_by,
            steps: d.steps.ends.len(),
            first_counted_step: d.steps.first_counted(),
            left_out_reason: d.steps.left_out(),
            too_few_steps: d.steps.too_few(),
            some_stacks: d.some_stacks.as_ref().map(|some| SomeStacksReport {
                steps_with_stacks: some.steps_with_stacks,
                told_apart_by: if some.by_stack { "stack" } else { "size" },
                note: some.note.clone(),
            }),
            leaks: d.leaks.iter().map(LeakReport::from).collect(),
            filled: d.filled.iter().map(FilledReport::from).collect(),
        }
    }
}

impl From<&Leak> for LeakReport {
    fn from(leak: &Leak) -> Self {
        Self {
            place: leak.place.clone(),
            frames: leak.frames.clone(),
            bytes_per_step: leak.bytes_per_step,
            blocks_per_step: leak.blocks_per_step,
            steps: leak.steps,
            steps_grown: leak.grew,
            bytes: leak.bytes,
            confidence: leak.confidence,
            series_bytes: leak.series.clone(),
        }
    }
}

impl From<&Filled> for FilledReport {
    fn from(filled: &Filled) -> Self {
        Self { place: filled.place.clone(), bytes: filled.bytes, last_step: filled.last_step }
    }
}

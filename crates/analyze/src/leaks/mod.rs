//! Memory that grows from step to step and is never given back.
//!
//! The history is cut into steps: by a marker that the user names, by annotations that repeat, or by
//! the period that is found in the history itself. What is live at the end of each step is summed up
//! for every stack (or, without stacks, every size). Growth in step after step up to the end of the
//! history is a leak; a cache that fills and stays is none, and neither is anything that falls again. Where only some
//! steps were recorded with stacks, those are looked at and the others left out.
//!
//! Not here: who keeps the memory. A history knows where a block was allocated, and nothing of the
//! references to it.

mod growth;
mod lifetimes;
mod period;
mod sampled;
mod steps;

use vramwise_trace::{DeviceTrace, Snapshot};

use crate::peak::holders::{By, Namer};
use crate::stacks::Sampled;

pub use steps::{StepSource, Steps};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; `None` = all with a history.
    pub device: Option<u32>,
    /// The name of the annotation or of the entry's own metadata that ends (or begins) each step.
    pub marker: Option<String>,
    /// Frames of the user's own code that name a place.
    pub frames: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, marker: None, frames: 1 }
    }
}

/// What is asked cannot be answered: no annotation has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchMarker {
    /// The names that there are, the most frequent first.
    pub known: Vec<String>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceLeaks {
    /// Its number.
    pub device: u32,
    /// Entries of its history.
    pub events: usize,
    /// The steps.
    pub steps: Steps,
    /// Where only some of them were recorded with stacks, and there are enough steps to compare.
    pub some_stacks: Option<SomeStacks>,
    /// What grows, most bytes a step first.
    pub leaks: Vec<Leak>,
    /// What grew over several steps and then stayed, most bytes first: caches.
    pub filled: Vec<Filled>,
}

/// Steps of which only some have stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SomeStacks {
    /// How many have.
    pub steps_with_stacks: usize,
    /// Whether growth is looked for in those, by stack; else in all, by size.
    pub by_stack: bool,
    /// The same as a sentence.
    pub note: String,
}

/// Memory that grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Leak {
    /// The user's line that allocates it.
    pub place: String,
    /// The frames that lead there, the innermost first, as `file:line function`; empty without stacks.
    pub frames: Vec<String>,
    /// Bytes a step, on average over the steps seen.
    pub bytes_per_step: u64,
    /// Blocks a step, on average.
    pub blocks_per_step: f64,
    /// Steps over which it was watched.
    pub steps: usize,
    /// In how many of them it grew.
    pub grew: usize,
    /// Bytes by which it grew in all.
    pub bytes: u64,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// Bytes live at the end of each step watched, one more than `steps`.
    pub series: Vec<u64>,
}

/// Memory that grew and stayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The user's line that allocates it.
    pub place: String,
    /// Bytes at the end.
    pub bytes: u64,
    /// The last step in which it grew, from 1.
    pub last_step: usize,
}

/// Looks for leaks on every device with a history.
///
/// # Errors
/// [`NoSuchMarker`] where a marker is given and does not occur.
pub fn find(snapshot: &Snapshot, options: &Options) -> Result<Vec<DeviceLeaks>, NoSuchMarker> {
    (0u32..)
        .zip(&snapshot.devices)
        .filter(|(n, d)| !d.events.is_empty() && options.device.is_none_or(|only| only == *n))
        .map(|(number, device)| one(snapshot, number, device, options))
        .collect()
}

fn one(
    snapshot: &Snapshot,
    number: u32,
    device: &DeviceTrace,
    options: &Options,
) -> Result<DeviceLeaks, NoSuchMarker> {
    let steps = steps::find(snapshot, number, device, options.marker.as_deref())?;
    let mut answer = DeviceLeaks {
        device: number,
        events: device.events.len(),
        steps,
        some_stacks: None,
        leaks: Vec::new(),
        filled: Vec::new(),
    };
    if answer.steps.too_few() {
        return Ok(answer);
    }
    let ends = &answer.steps.ends;
    let watched = sampled::Watched::of(device, ends);
    answer.some_stacks = watched.told(ends.len(), Sampled::of(snapshot, number, device));
    let mut groups = lifetimes::groups(device, ends, watched.by_stack());
    watched.only(&mut groups);
    let mut namer = Namer::new(snapshot, By::Stack, options.frames);
    (answer.leaks, answer.filled) = growth::judge(groups, ends.len(), &watched.steps, |group| {
        group.named(snapshot, &mut namer)
    });
    Ok(answer)
}

#[cfg(test)]
mod tests;

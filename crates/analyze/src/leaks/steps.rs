//! Where the steps of a history end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vramwise_trace::{Annotation, DeviceTrace, Snapshot};

use super::growth::{LEAST_ENDS, warm_up};
use super::{NoSuchMarker, period};

/// The steps of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How they were found.
    pub source: StepSource,
    /// For each step the number of events up to its end, ascending.
    pub ends: Vec<usize>,
    /// Further marks, before which, or since the one before, nothing was recorded.
    pub outside: usize,
}

impl Steps {
    /// The first step, from 1, whose growth is counted; `None` where there are too few.
    pub fn first_counted(&self) -> Option<usize> {
        (!self.too_few()).then(|| warm_up(self.ends.len()) + 2)
    }

    /// Why steps are left out, in a sentence; `None` where none is looked at.
    pub fn left_out(&self) -> Option<String> {
        let first = self.first_counted()?;
        let mut why = match first {
            2 => "step 1 is not counted: what is live at its end is where growth is measured from"
                .to_owned(),
            _ => format!(
                "steps 1 {} {} are not counted: optimizers and caches come to be in the first ones, and \
                 growth is measured from what is live at the end of step {}",
                if first == 3 { "and" } else { "to" },
                first - 1,
                first - 1
            ),
        };
        if self.outside > 0 {
            let _ = write!(
                why,
                "; {} more {} left out: nothing was recorded before, or since the one before",
                self.outside,
                if self.outside == 1 { "mark is" } else { "marks are" }
            );
        }
        Some(why)
    }

    /// Whether they are too few to tell growth from a beginning.
    pub fn too_few(&self) -> bool {
        self.ends.len() < LEAST_ENDS
    }
}

/// How steps were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// The marker that the user named.
    Marker(String),
    /// An annotation that repeats.
    Annotation(String),
    /// The period of the history: the allocation that begins each step, in words.
    Period(String),
    /// There are none.
    None,
}

/// Annotations that mark steps, the surest first, as parts of their lower-case names.
const STEP_NAMES: [&str; 7] =
    ["vramwise.step", "profilerstep", "optimizer.step", "step", "iter", "batch", "epoch"];

/// The first so many of them mark nothing else.
const SURE: usize = 3;

/// Finds the steps.
pub(super) fn find(
    snapshot: &Snapshot,
    number: u32,
    device: &DeviceTrace,
    marker: Option<&str>,
) -> Result<Steps, NoSuchMarker> {
    let mut marks = marks(snapshot, number, device);
    if let Some(marker) = marker {
        let exact = marks.remove(marker);
        let found = exact.or_else(|| {
            let like = marks.iter().filter(|(name, _)| name.contains(marker));
            like.max_by_key(|(_, marks)| marks.ends.len()).map(|(_, marks)| marks.clone())
        });
        let Some(marks) = found else {
            let mut known: Vec<(String, usize)> =
                marks.into_iter().map(|(name, marks)| (name, marks.ends.len())).collect();
            known.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            return Err(NoSuchMarker { known: known.into_iter().map(|(name, _)| name).collect() });
        };
        return Ok(marks.steps(StepSource::Marker(marker.to_owned())));
    }
    let place = |name: &str| {
        let lower = name.to_ascii_lowercase();
        STEP_NAMES.iter().position(|part| lower.contains(part))
    };
    // The surest names are believed even where they are too few: better no answer than the period of
    // something inside a step.
    let best = marks
        .iter()
        .filter_map(|(name, marks)| Some((place(name)?, marks.ends.len(), name)))
        .filter(|(place, times, _)| *place < SURE || *times >= LEAST_ENDS - 1)
        .min();
    if let Some((_, _, name)) = best {
        let source = StepSource::Annotation(name.clone());
        return Ok(marks[name].clone().steps(source));
    }
    Ok(period::find(snapshot, device).unwrap_or_else(|| Marks::default().steps(StepSource::None)))
}

/// Where annotations of one name end.
#[derive(Clone, Debug, Default)]
struct Marks {
    ends: Vec<usize>,
    /// Further ones, before which, or since the one before, nothing was recorded.
    outside: usize,
}

impl Marks {
    fn steps(self, source: StepSource) -> Steps {
        Steps { source, ends: self.ends, outside: self.outside }
    }
}

/// The ends of all annotations of a device by name (numbers at the end of a name are left out, as in
/// `ProfilerStep#12`), and the changes of the entries' own metadata, as numbers of events.
fn marks(snapshot: &Snapshot, number: u32, device: &DeviceTrace) -> BTreeMap<String, Marks> {
    let mut found: BTreeMap<String, Marks> = BTreeMap::new();
    let times = &device.events.time_us;
    let ours = |a: &Annotation| a.device.is_none_or(|d| d == number);
    // A process with several devices marks its steps on the one that is current: those are for all then.
    let all = !snapshot.annotations.iter().any(ours);
    let mut ends: Vec<(u64, String)> = snapshot
        .annotations
        .iter()
        .filter(|a| !a.is_start && (all || ours(a)))
        .map(|a| (a.time_us, without_number(snapshot.strings.get(a.name))))
        .collect();
    ends.sort();
    let mut at = 0;
    for (time, name) in ends {
        while at < times.len() && times[at] <= time {
            at += 1;
        }
        // Before the recording or after it: nothing of the step is known.
        let within = at > 0 && (at < times.len() || times.last().is_some_and(|last| *last <= time));
        let marks = found.entry(name).or_default();
        if within {
            marks.ends.push(at);
        } else {
            marks.outside += 1;
        }
    }
    let mut last: Option<&str> = None;
    for (event, text) in &device.events.user_metadata {
        let text = snapshot.strings.get(*text);
        if last.is_some_and(|last| last != text) {
            found.entry(without_number(text)).or_default().ends.push(*event as usize);
        }
        last = Some(text);
    }
    found.retain(|_, marks| !marks.ends.is_empty());
    for marks in found.values_mut() {
        let all = marks.ends.len();
        marks.ends.dedup();
        marks.outside += all - marks.ends.len();
    }
    found
}

fn without_number(name: &str) -> String {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
    plain.trim_end_matches(['#', ' ', '_', ':', '=']).to_owned()
}

//! Whether only some steps of a recording have stacks, as the recorder of the Python package makes them, and which.
//!
//! Known from the file alone: the recorder says so in the files that it writes, and where somebody else wrote the file,
//! its marks of steps tell which of them have stacks. Not here: what follows for growth over steps ([`crate::leaks`]).

use std::fmt::Write as _;
use std::ops::Range;

use vramwise_trace::{DeviceTrace, Snapshot, StackId};
use vramwise_types::{Action, Human};

/// How the recorder's marks of steps begin; a number follows.
const MARK: &str = "vramwise.step#";
/// Runs of numbers that a sentence names.
const NAMED: usize = 6;

/// A recording in which only some steps have stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Steps in the history that allocate.
    pub steps: usize,
    /// Those of them with stacks, as the recorder's marks number them from 0, ascending.
    pub with_stacks: Vec<u64>,
    /// The last steps of the run with stacks, as the recorder says; empty where another program wrote the file.
    pub told: Vec<u64>,
    /// Bytes requested in the history.
    pub requested: u64,
    /// Bytes of those requests whose stack is in the history.
    pub requested_with_stack: u64,
}

impl Sampled {
    /// Of one device; `None` where all steps have stacks, or none has and nobody says that some had.
    pub fn of(snapshot: &Snapshot, number: u32, device: &DeviceTrace) -> Option<Self> {
        let told = snapshot.recorder.as_ref().and_then(|note| note.steps_with_stacks.as_ref());
        let steps = steps(snapshot, number, device);
        let shares: Vec<(u64, f64)> = steps
            .iter()
            .filter_map(|(step, events)| Some((*step, share(device, events.clone())?)))
            .collect();
        let with = with_stacks(&shares.iter().map(|(_, share)| Some(*share)).collect::<Vec<_>>());
        let some = with.iter().any(|with| !with);
        let any = shares.iter().any(|(_, share)| *share > 0.0);
        if !(any && some || told.is_some() && !any && !shares.is_empty()) {
            return None;
        }
        let (mut requested, mut requested_with_stack) = (0u64, 0u64);
        for i in (0..device.events.len()).filter(|i| device.events.action[*i] == Action::Alloc) {
            let size = device.events.size[i];
            requested = requested.saturating_add(size);
            if device.events.stack_of(i) != StackId::NONE {
                requested_with_stack = requested_with_stack.saturating_add(size);
            }
        }
        let numbers = shares.iter().zip(&with).filter(|(_, with)| any && **with);
        Some(Self {
            steps: shares.len(),
            with_stacks: numbers.map(|((step, _), _)| *step).collect(),
            told: told.cloned().unwrap_or_default(),
            requested,
            requested_with_stack,
        })
    }

    /// Which steps have stacks, as half a sentence.
    pub fn which(&self) -> String {
        let mut text = match self.with_stacks.as_slice() {
            [] => {
                format!("none of the {} steps in the history was recorded with stacks", self.steps)
            }
            with => format!(
                "only {} of the {} steps in the history {} recorded with stacks ({})",
                with.len(),
                self.steps,
                if with.len() == 1 { "was" } else { "were" },
                numbers(with)
            ),
        };
        if self.with_stacks.is_empty() && !self.told.is_empty() {
            let _ = write!(text, " (the last ones with them were {})", numbers(&self.told));
        }
        text
    }

    /// The whole of it, in one sentence without a full stop.
    pub fn sentence(&self) -> String {
        format!(
            "{}, {} of {} requested; what other steps allocated is \"no stack recorded\" (stacks=\"python\" records all)",
            self.which(),
            Human(self.requested_with_stack),
            Human(self.requested)
        )
    }
}

/// Which of some steps have stacks, by the share of their allocations that does (nothing for a step that allocates
/// nothing, which cannot lack any).
pub(crate) fn with_stacks(shares: &[Option<f64>]) -> Vec<bool> {
    let most = shares.iter().flatten().copied().fold(0.0, f64::max);
    // Threads of PyTorch's own have no stacks in any step, so that no step has them for all.
    shares.iter().map(|share| share.is_none_or(|share| share * 4.0 >= most)).collect()
}

/// The share of the allocations among some events that have stacks; nothing where there are none.
pub(crate) fn share(device: &DeviceTrace, events: Range<usize>) -> Option<f64> {
    let (mut all, mut with) = (0u32, 0u32);
    for i in events.filter(|i| device.events.action.get(*i) == Some(&Action::Alloc)) {
        all += 1;
        with += u32::from(device.events.stack_of(i) != StackId::NONE);
    }
    (all > 0).then(|| f64::from(with) / f64::from(all))
}

/// The steps that the recorder has marked, with their events. What follows the last mark is of the next step.
fn steps(snapshot: &Snapshot, number: u32, device: &DeviceTrace) -> Vec<(u64, Range<usize>)> {
    let times = &device.events.time_us;
    if times.is_empty() {
        return Vec::new();
    }
    let marks = |only: Option<u32>| -> Vec<(u64, u64)> {
        let ours = |device: Option<u32>| only.is_none() || device.is_none() || device == only;
        let ends = snapshot.annotations.iter().filter(|a| !a.is_start && ours(a.device));
        let step = |name| snapshot.strings.get(name).strip_prefix(MARK)?.parse().ok();
        let mut ends: Vec<(u64, u64)> =
            ends.filter_map(|a| Some((a.time_us, step(a.name)?))).collect();
        ends.sort_unstable();
        ends
    };
    // A process marks its steps on the device that is current; stacks are switched for all.
    let mut ends = marks(Some(number));
    if ends.is_empty() {
        ends = marks(None);
    }
    let mut found = Vec::with_capacity(ends.len() + 1);
    let mut begin = 0;
    for (time, step) in &ends {
        let end = begin + times[begin..].iter().take_while(|t| *t <= time).count();
        found.push((*step, begin..end));
        begin = end;
    }
    if let Some((_, last)) = ends.last() {
        found.push((last.saturating_add(1), begin..times.len()));
    }
    found
}

/// Numbers as people write them: `0-2, 20, 40`.
fn numbers(all: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for n in all {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*n) => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let shown = |(from, to): &(u64, u64)| match to - from {
        0 => from.to_string(),
        1 => format!("{from}, {to}"),
        _ => format!("{from}-{to}"),
    };
    let more = if runs.len() > NAMED { ", …" } else { "" };
    let named: Vec<String> = runs.iter().take(NAMED).map(shown).collect();
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use vramwise_trace::{ReadOptions, read_slice};

    use super::*;

    /// Steps of one request of 1 MiB each, marked as the recorder does; `note` is what it says of the file.
    fn history(steps: usize, first: u64, stacks: impl Fn(usize) -> bool, note: &str) -> Snapshot {
        let (mut events, mut marks) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let (addr, time) = ((step as u64 + 1) << 21, 10 * step as u64);
            let mut event = format!(
                "{{\"action\":\"alloc\",\"addr\":{addr},\"size\":1048576,\"stream\":0,\"time_us\":{time}"
            );
            if stacks(step) {
                event += ",\"frames\":[{\"filename\":\"train.py\",\"line\":1,\"name\":\"train\"}]";
            }
            events.push(event + "}");
            let _ = write!(
                marks_text(&mut marks),
                "vramwise.step#{}\",\"device\":0,\"time_us\":{}}}",
                first + step as u64,
                time + 5
            );
        }
        let text = format!(
            "{{\"segments\":[],\"device_traces\":[[{}]],{note}\"external_annotations\":[{}]}}",
            events.join(","),
            marks.join(",")
        );
        read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot")
    }

    fn marks_text(marks: &mut Vec<String>) -> &mut String {
        marks.push("{\"stage\":\"END\",\"name\":\"".to_owned());
        let last = marks.len() - 1;
        &mut marks[last]
    }

    fn of(snapshot: &Snapshot) -> Option<Sampled> {
        Sampled::of(snapshot, 0, &snapshot.devices[0])
    }

    #[test]
    fn the_marks_of_steps_tell_which_have_stacks() {
        let found = of(&history(45, 0, |n| n < 3 || n % 20 == 0, "")).expect("it is sampled");
        assert_eq!((found.steps, found.with_stacks.as_slice()), (45, &[0, 1, 2, 20, 40][..]));
        assert_eq!((found.requested, found.requested_with_stack), (45 << 20, 5 << 20));
        assert_eq!(
            found.which(),
            "only 5 of the 45 steps in the history were recorded with stacks (0-2, 20, 40)"
        );
    }

    #[test]
    fn where_all_or_none_have_stacks_nothing_is_said_to_be_sampled() {
        assert_eq!(of(&history(9, 0, |_| true, "")), None);
        assert_eq!(of(&history(9, 0, |_| false, "")), None);
        assert_eq!(
            of(&history(9, 0, |_| true, "\"vramwise_recorder\":{\"steps_with_stacks\":[0,1]},")),
            None
        );
        assert_eq!(
            of(&history(9, 0, |_| false, "\"vramwise_recorder\":{\"steps_with_stacks\":null},")),
            None
        );
    }

    #[test]
    fn a_history_between_two_steps_with_stacks_is_known_by_what_the_recorder_says() {
        let note = "\"vramwise_recorder\":{\"steps_with_stacks\":[0,1,2,20]},";
        let found = of(&history(9, 25, |_| false, note)).expect("it is sampled");
        assert_eq!((found.steps, found.with_stacks.as_slice()), (9, &[][..]));
        assert_eq!(
            found.which(),
            "none of the 9 steps in the history was recorded with stacks (the last ones with them were 0-2, 20)"
        );
    }

    #[test]
    fn what_comes_behind_the_last_mark_is_of_the_next_step() {
        let mut snapshot = history(9, 0, |n| n == 8, "");
        snapshot.annotations.pop();
        let found = of(&snapshot).expect("it is sampled");
        assert_eq!((found.steps, found.with_stacks.as_slice()), (9, &[8][..]));
    }
}

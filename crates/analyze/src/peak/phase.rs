//! What the program was doing at a moment, as far as its annotations tell.

use vramwise_trace::{Snapshot, StringId};

/// The annotations around a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// Those that had begun and not ended, the outermost first.
    pub within: Vec<String>,
    /// The one that ended last before, with how often it had ended by then.
    pub after: Option<(String, u64)>,
}

/// The annotations of one device in order of time.
pub(super) struct Phases<'a> {
    snapshot: &'a Snapshot,
    /// (time, whether it starts, name)
    marks: Vec<(u64, bool, StringId)>,
}

impl<'a> Phases<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, device: u32) -> Self {
        let ours = snapshot.annotations.iter().filter(|a| a.device.is_none_or(|d| d == device));
        let mut marks: Vec<_> = ours.map(|a| (a.time_us, a.is_start, a.name)).collect();
        marks.sort_by_key(|mark| mark.0);
        Self { snapshot, marks }
    }

    /// What was going on at a time.
    pub(super) fn at(&self, time_us: u64) -> Phase {
        let mut open: Vec<StringId> = Vec::new();
        let mut last = None;
        let passed = self.marks.partition_point(|mark| mark.0 <= time_us);
        for (_, is_start, name) in &self.marks[..passed] {
            if *is_start {
                open.push(*name);
                continue;
            }
            if let Some(at) = open.iter().rposition(|n| n == name) {
                open.remove(at);
            }
            last = Some(*name);
        }
        let text = |name: &StringId| self.snapshot.strings.get(*name).to_owned();
        let ended = |name: StringId| {
            let times = self.marks[..passed].iter().filter(|m| !m.1 && m.2 == name).count();
            (text(&name), times as u64)
        };
        Phase { within: open.iter().map(text).collect(), after: last.map(ended) }
    }
}

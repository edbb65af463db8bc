//! Where in a history the program's own annotations begin and end: what a slice is cut by.

use std::collections::BTreeMap;
use std::ops::Range;

use vramwise_trace::Snapshot;

/// A block of the program that an annotation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its name, as it was given.
    pub name: String,
    /// Its events: the first one, and the first behind it.
    pub events: Range<usize>,
}

/// The annotated blocks of a device, in the order in which they end, then those that never end.
///
/// A block whose beginning is before the recording begins with it; one that has not ended ends with it. Where entries
/// have no times, nothing can be told, and there are none.
#[must_use]
pub fn spans(snapshot: &Snapshot, number: u32) -> Vec<Span> {
    let Some(device) = snapshot.devices.get(number as usize) else { return Vec::new() };
    let times = &device.events.time_us;
    if times.iter().all(|time| *time == 0) {
        return Vec::new();
    }
    // Times never fall but by a clock that is set back; then the first event behind is as good as any.
    let at = |time: u64| times.partition_point(|t| *t < time);
    let mut marks: Vec<_> = snapshot
        .annotations
        .iter()
        .filter(|mark| mark.device.is_none_or(|device| device == number))
        .collect();
    marks.sort_by_key(|mark| mark.time_us);
    let mut open: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut found = Vec::new();
    for mark in marks {
        let name = snapshot.strings.get(mark.name);
        if mark.is_start {
            open.entry(name).or_default().push(at(mark.time_us));
            continue;
        }
        let from = open.get_mut(name).and_then(Vec::pop).unwrap_or(0);
        found.push(Span { name: name.to_owned(), events: from..at(mark.time_us).max(from) });
    }
    for (name, begins) in open {
        let span = |from| Span { name: name.to_owned(), events: from..times.len() };
        found.extend(begins.into_iter().map(span));
    }
    found
}

#[cfg(test)]
mod tests {
    use vramwise_trace::{ReadOptions, read_slice};

    use super::*;

    fn of(marks: &[(&str, &str, u64)]) -> Vec<Span> {
        let marks: Vec<String> = marks
            .iter()
            .map(|(name, stage, time)| {
                format!(r#"{{"name":"{name}","stage":"{stage}","device":0,"time_us":{time}}}"#)
            })
            .collect();
        let events: Vec<String> = (0..10)
            .map(|n| {
                let time = 100 + 10 * n;
                format!(r#"{{"action":"alloc","addr":{n},"size":512,"stream":0,"time_us":{time}}}"#)
            })
            .collect();
        let text = format!(
            r#"{{"segments":[],"device_traces":[[{}]],"external_annotations":[{}]}}"#,
            events.join(","),
            marks.join(",")
        );
        let read = read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot");
        spans(&read, 0)
    }

    fn span(name: &str, events: Range<usize>) -> Span {
        Span { name: name.to_owned(), events }
    }

    #[test]
    fn a_block_has_the_events_between_its_marks() {
        let found = of(&[
            ("train", "START", 95),
            ("eval", "START", 125),
            ("eval", "END", 145),
            ("train", "END", 195),
        ]);
        assert_eq!(found, [span("eval", 3..5), span("train", 0..10)]);
    }

    #[test]
    fn blocks_of_one_name_may_lie_in_each_other() {
        let found =
            of(&[("a", "START", 105), ("a", "START", 125), ("a", "END", 145), ("a", "END", 155)]);
        assert_eq!(found, [span("a", 3..5), span("a", 1..6)]);
    }

    #[test]
    fn what_has_no_beginning_or_no_end_has_those_of_the_recording() {
        let found = of(&[("late", "END", 125), ("open", "START", 165)]);
        assert_eq!(found, [span("late", 0..3), span("open", 7..10)]);
    }

    #[test]
    fn a_block_without_events_is_empty_and_there_all_the_same() {
        assert_eq!(of(&[("a", "START", 131), ("a", "END", 132)]), [span("a", 4..4)]);
    }
}

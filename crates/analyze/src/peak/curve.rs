//! Memory over the events of a history: four peaks with their moments, and a timeline of few columns.

/// One column of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// First event of the column.
    pub first_event: usize,
    /// Most allocated bytes in the column.
    pub allocated: u64,
    /// Most reserved bytes in the column.
    pub reserved: u64,
}

/// The figures at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) active: u64,
    pub(super) requested: u64,
}

/// A highest value and the step at which it was first reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct High {
    pub(super) bytes: u64,
    pub(super) step: usize,
}

impl High {
    #[inline]
    fn see(&mut self, bytes: u64, step: usize) {
        if bytes > self.bytes {
            *self = High { bytes, step };
        }
    }
}

/// Collects the figures step by step.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) allocated: High,
    pub(super) reserved: High,
    pub(super) active: High,
    pub(super) requested: High,
    columns: Vec<Column>,
    events: usize,
    /// Column that is being filled, and the level that lasts into the next.
    at: usize,
    level: Level,
}

impl Curve {
    /// A curve over `events` events that begins at `start`.
    pub(super) fn new(events: usize, columns: usize, start: Level) -> Self {
        let count = columns.min(events);
        let first = |i: usize| (i * events).div_ceil(count.max(1));
        let columns = (0..count).map(|i| Column { first_event: first(i), ..Column::default() });
        let high = |bytes| High { bytes, step: 0 };
        let mut curve = Self {
            allocated: high(start.allocated),
            reserved: high(start.reserved),
            active: high(start.active),
            requested: high(start.requested),
            columns: columns.collect(),
            events,
            at: 0,
            level: start,
        };
        curve.mark();
        curve
    }

    /// The level after step `step`, whose last event is `event`; `peak` may be higher than `level` where
    /// the step itself rose and fell.
    #[inline]
    pub(super) fn see(&mut self, step: usize, event: usize, level: Level, peak: Level) {
        self.allocated.see(peak.allocated, step);
        self.reserved.see(peak.reserved, step);
        self.active.see(peak.active, step);
        self.requested.see(peak.requested, step);
        self.advance(event);
        self.level = level;
        self.mark();
    }

    fn advance(&mut self, event: usize) {
        while self.at + 1 < self.columns.len() && self.columns[self.at + 1].first_event <= event {
            self.at += 1;
            self.mark();
        }
    }

    fn mark(&mut self) {
        if let Some(column) = self.columns.get_mut(self.at) {
            column.allocated = column.allocated.max(self.level.allocated);
            column.reserved = column.reserved.max(self.level.reserved);
        }
    }

    /// The columns, the last level carried to the end.
    pub(super) fn finish(&mut self) -> Vec<Column> {
        self.advance(self.events);
        std::mem::take(&mut self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_lasts_until_the_next_step_and_a_column_shows_its_highest() {
        let level = |allocated| Level { allocated, ..Level::default() };
        let mut curve = Curve::new(8, 4, level(1));
        curve.see(0, 1, level(9), level(9));
        curve.see(1, 5, level(2), level(2));
        let columns = curve.finish();
        let shown: Vec<_> = columns.iter().map(|c| (c.first_event, c.allocated)).collect();
        assert_eq!(shown, [(0, 9), (2, 9), (4, 9), (6, 2)]);
        assert_eq!((curve.allocated.bytes, curve.allocated.step), (9, 0));
    }

    #[test]
    fn fewer_events_than_columns_make_fewer_columns() {
        assert_eq!(Curve::new(3, 60, Level::default()).finish().len(), 3);
        assert!(Curve::new(0, 60, Level::default()).finish().is_empty());
    }
}

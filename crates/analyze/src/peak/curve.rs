//! Memory over the events of a history, or over a part of them: four peaks with their moments, and a
//! timeline of few columns.

use std::ops::Range;

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
    /// Events that are looked at, of so many.
    window: Range<usize>,
    whole: bool,
    /// Whether the window has begun.
    entered: bool,
    last_step: usize,
    /// Column that is being filled, and the level that lasts into the next.
    at: usize,
    level: Level,
}

impl Curve {
    /// A curve over these events of `events` that begins at `start`.
    pub(super) fn new(
        events: usize,
        window: Option<Range<usize>>,
        columns: usize,
        start: Level,
    ) -> Self {
        let whole = window.is_none();
        let window = window.unwrap_or(0..events);
        let length = window.len();
        let count = columns.min(length);
        let first = |i: usize| window.start + (i * length).div_ceil(count.max(1));
        let columns = (0..count).map(|i| Column { first_event: first(i), ..Column::default() });
        let mut curve = Self {
            allocated: High::default(),
            reserved: High::default(),
            active: High::default(),
            requested: High::default(),
            columns: columns.collect(),
            entered: false,
            last_step: 0,
            window,
            whole,
            at: 0,
            level: start,
        };
        if curve.window.start == 0 {
            curve.enter();
        }
        curve
    }

    /// The level that lasts into the window counts in it.
    fn enter(&mut self) {
        self.entered = true;
        let level = self.level;
        self.highs(self.last_step, level);
        self.mark();
    }

    fn highs(&mut self, step: usize, level: Level) {
        self.allocated.see(level.allocated, step);
        self.reserved.see(level.reserved, step);
        self.active.see(level.active, step);
        self.requested.see(level.requested, step);
    }

    /// The level after step `step`, whose last event is `event`; `peak` may be higher than `level` where
    /// the step itself rose and fell. It is the highest since the beginning, and says nothing of a part.
    #[inline]
    pub(super) fn see(&mut self, step: usize, event: usize, level: Level, peak: Level) {
        if event >= self.window.end && !self.whole {
            if !self.entered {
                self.enter();
            }
            return;
        }
        if event >= self.window.start {
            if !self.entered {
                self.enter();
            }
            self.highs(step, if self.whole { peak } else { level });
            self.advance(event);
        }
        self.level = level;
        self.last_step = step;
        if self.entered {
            self.mark();
        }
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
        if !self.entered {
            self.enter();
        }
        self.advance(self.window.end);
        std::mem::take(&mut self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_lasts_until_the_next_step_and_a_column_shows_its_highest() {
        let level = |allocated| Level { allocated, ..Level::default() };
        let mut curve = Curve::new(8, None, 4, level(1));
        curve.see(0, 1, level(9), level(9));
        curve.see(1, 5, level(2), level(2));
        let columns = curve.finish();
        let shown: Vec<_> = columns.iter().map(|c| (c.first_event, c.allocated)).collect();
        assert_eq!(shown, [(0, 9), (2, 9), (4, 9), (6, 2)]);
        assert_eq!((curve.allocated.bytes, curve.allocated.step), (9, 0));
    }

    #[test]
    fn fewer_events_than_columns_make_fewer_columns() {
        assert_eq!(Curve::new(3, None, 60, Level::default()).finish().len(), 3);
        assert!(Curve::new(0, None, 60, Level::default()).finish().is_empty());
    }

    #[test]
    fn a_part_has_its_own_peak_and_begins_with_what_was_there() {
        let level = |allocated| Level { allocated, ..Level::default() };
        let part = |window| {
            let mut curve = Curve::new(6, Some(window), 2, level(0));
            for (i, (now, peak)) in
                [(5, 5), (90, 90), (7, 90), (8, 90), (3, 90), (60, 90)].iter().enumerate()
            {
                curve.see(i + 1, i, level(*now), level(*peak));
            }
            let columns: Vec<_> =
                curve.finish().iter().map(|c| (c.first_event, c.allocated)).collect();
            (curve.allocated.bytes, curve.allocated.step, columns)
        };
        assert_eq!(part(3..5), (8, 4, vec![(3, 8), (4, 8)]));
        assert_eq!(part(2..4), (90, 2, vec![(2, 90), (3, 8)]));
        assert_eq!(part(0..2), (90, 2, vec![(0, 5), (1, 90)]));
    }
}

//! Compares what the model records with what the file says, entry by entry.

use vramwise_model::{Entry, Recorder};
use vramwise_types::Action;

use crate::history::{Ev, History};

/// Where model and recording part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Entry of the history (not event of the file).
    pub(crate) at: usize,
    /// What the model did; `None`: it did nothing where the recording has an entry.
    pub(crate) got: Option<Entry>,
}

/// Exact entries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exact {
    pub(crate) allocs: u64,
    pub(crate) segment_allocs: u64,
    pub(crate) segment_frees: u64,
    pub(crate) segment_maps: u64,
    pub(crate) segment_unmaps: u64,
    pub(crate) ooms: u64,
}

impl Exact {
    pub(crate) fn count(&mut self, action: Action) {
        match action {
            Action::Alloc => self.allocs += 1,
            Action::SegmentAlloc => self.segment_allocs += 1,
            Action::SegmentFree => self.segment_frees += 1,
            Action::SegmentMap => self.segment_maps += 1,
            Action::SegmentUnmap => self.segment_unmaps += 1,
            Action::Oom => self.ooms += 1,
            _ => {}
        }
    }
}

/// The recorder of a verification.
#[derive(Clone, Debug)]
pub(crate) struct Checker<'a> {
    history: &'a History,
    /// Next entry to be matched.
    pub(crate) at: usize,
    pub(crate) exact: Exact,
    pub(crate) mismatch: Option<Mismatch>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(history: &'a History) -> Self {
        Self { history, at: 0, exact: Exact::default(), mismatch: None }
    }

    fn matches(want: &Ev, got: &Entry) -> bool {
        let action = want.action == got.action
            || (want.action == Action::Free && got.action == Action::FreeRequested);
        // The driver's free bytes in an OOM entry are not the model's to know.
        let addr = want.addr == got.addr || want.action == Action::Oom;
        action && addr && want.size == got.size && want.stream == got.stream
    }
}

impl Recorder for Checker<'_> {
    fn record(&mut self, entry: Entry) {
        if self.mismatch.is_some() {
            return;
        }
        let left_out = match entry.action {
            Action::FreeRequested => !self.history.has_requested,
            Action::FreeCompleted => !self.history.has_completed,
            _ => false,
        };
        if left_out {
            return;
        }
        match self.history.entries.get(self.at) {
            Some(want) if Self::matches(want, &entry) => {
                self.exact.count(want.action);
                self.at += 1;
            }
            _ => self.mismatch = Some(Mismatch { at: self.at, got: Some(entry) }),
        }
    }
}

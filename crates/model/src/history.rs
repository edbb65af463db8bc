//! What the allocator would write into its memory history.

use vramwise_types::Action;

/// One entry of a memory history (specification §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Address; for [`Action::Oom`] the driver's free bytes.
    pub addr: u64,
    /// Bytes: requested for blocks, device bytes for segments, rounded for [`Action::Oom`].
    pub size: u64,
    /// Index of the stream, as given to the allocator.
    pub stream: u32,
}

/// Receives the entries in order.
pub trait Recorder {
    /// Takes one entry.
    fn record(&mut self, entry: Entry);
}

/// History is off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHistory;

impl Recorder for NoHistory {
    #[inline]
    fn record(&mut self, _entry: Entry) {}
}

impl Recorder for Vec<Entry> {
    fn record(&mut self, entry: Entry) {
        self.push(entry);
    }
}

//! Why a recorded program ran out of memory, proved by replay.
//!
//! The recording is verified first; its program is then replayed up to the request that failed, in
//! the recording or under a capacity that is asked about. The state at that moment says what was
//! live, what was free and where; the cause follows from arithmetic, and every piece of advice is a
//! replay of its own: of the same program under other settings, a larger limit, or with a change that
//! stands for one of the code.
//!
//! Not here: texts of errors ([`crate::oom`]), reading files, printing.

mod advice;
mod change;
mod classify;
mod moment;
mod pins;
mod pools;
mod recorded;
mod run;
mod trial;
mod unproved;

pub use pins::{Holder, PinBlock, PinnedSegment};
pub use run::explain;
pub use trial::Trial;

use vramwise_types::TorchVersion;

pub use crate::oom::Cause;
use crate::stacks::Sampled;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; `None` = all with a history.
    pub device: Option<u32>,
    /// PyTorch's version, whose rules the replay follows.
    pub version: TorchVersion,
    /// Bytes that the process may hold; `None` = as it was recorded.
    pub capacity: Option<u64>,
    /// The card's bytes, where they are known.
    pub total: Option<u64>,
    /// Frames of the user's own code that name a place.
    pub frames: usize,
}

impl Options {
    /// As recorded, one frame a place.
    pub fn new(version: TorchVersion) -> Self {
        Self { device: None, version, capacity: None, total: None, frames: 1 }
    }
}

/// What the answer rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The replay reproduced the whole recording: so many entries.
    Exact(usize),
    /// It did not, and nothing about other conditions can be proved; why.
    None(String),
}

/// One device of a snapshot.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its number.
    pub device: u32,
    /// Entries of its history.
    pub events: usize,
    /// What the answer rests on.
    pub proof: Proof,
    /// Settings in force, as people write them; empty for PyTorch's defaults.
    pub conf: String,
    /// Bytes that were given as what the process may hold, if any were.
    pub capacity: Option<u64>,
    /// Most bytes held at once in the recording, where the replay is exact.
    pub peak_reserved: Option<u64>,
    /// Most bytes held at once in a replay under `capacity`, where no request fails under it.
    pub peak_under_capacity: Option<u64>,
    /// Requests that failed in the recording.
    pub recorded_failures: usize,
    /// The first request that fails; `None` where none does.
    pub failure: Option<Failure>,
    /// Where only some steps were recorded with stacks, which.
    pub sampled: Option<Sampled>,
    /// What had to be assumed.
    pub assumptions: Vec<String>,
}

impl Device {
    /// Whether a request fails; `None` where that was asked of a capacity and no replay can tell.
    pub fn fails(&self) -> Option<bool> {
        let unknown = self.capacity.is_some() && matches!(self.proof, Proof::None(_));
        if self.failure.is_none() && unknown { None } else { Some(self.failure.is_some()) }
    }
}

/// The bytes that the process could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What the replays assume: the given capacity, or the strictest that allows what succeeded.
    pub low: u64,
    /// No request that failed could have failed under more than this.
    pub high: u64,
    /// Whether it was given; else it is inferred.
    pub given: bool,
}

/// The memory when the request failed, after the cache was flushed. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The request, rounded.
    pub asked: u64,
    /// What was asked of the driver for it: a whole segment.
    pub segment: u64,
    /// Blocks that the program held.
    pub allocated: u64,
    /// Requested bytes of these.
    pub requested: u64,
    /// Blocks that were given back but that other streams could still use.
    pub pending: u64,
    /// Held by the allocator.
    pub reserved: u64,
    /// Free in segments of the request's own pool and stream.
    pub free_own: u64,
    /// The largest such block.
    pub largest_own: u64,
    /// Free in segments of other streams.
    pub free_streams: u64,
    /// Free in other pools: private ones, or the small or large half that the request may not use.
    pub free_pools: u64,
    /// How much of that lies in private pools.
    pub free_private: u64,
    /// Free on the card, as the driver said; `None` where the failure was not recorded.
    pub device_free: Option<u64>,
}

impl Account {
    /// What must be held at least for the request to pass: live bytes and the request.
    pub fn needed(&self) -> u64 {
        self.requested.saturating_add(self.asked)
    }

    /// Free bytes inside the segments.
    pub fn free(&self) -> u64 {
        self.free_own.saturating_add(self.free_streams).saturating_add(self.free_pools)
    }
}

/// A request that found no memory.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Event of the file.
    pub event: usize,
    /// Unix time in microseconds, where the history has times.
    pub time_us: Option<u64>,
    /// Whether it failed in the recording; else only under the capacity that was asked about.
    pub recorded: bool,
    /// Whether further replays prove the cause and the advice: they come to the recorded figures.
    pub proved: bool,
    /// The line that asked.
    pub place: String,
    /// What the process could hold.
    pub limit: Limit,
    /// The memory at that moment.
    pub account: Account,
    /// Why it failed.
    pub cause: Cause,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// Causes that add to it, with the bytes that each is good for.
    pub contributing: Vec<(Cause, u64)>,
    /// The reasons, with their arithmetic.
    pub why: Vec<String>,
    /// What to do, in order of effect.
    pub advice: Vec<Advice>,
    /// Segments that blocks in use keep although a part is free, most free bytes first.
    pub pinned: Vec<PinnedSegment>,
    /// Who held the memory, most bytes first.
    pub holders: Vec<Holder>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What to do, in the imperative.
    pub action: String,
    /// Why it helps, or that it is not proved.
    pub evidence: String,
    /// The replay that proves it; `None` where it is advice without a proof.
    pub trial: Option<Trial>,
}

#[cfg(test)]
mod tests;

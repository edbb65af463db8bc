//! The moment at which a request fails in a replay.

use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, NoHistory, SegmentView};
use vramwise_replay::{
    Conditions, Observer, Op, OutOfMemory, Program, Recording, what_if, what_if_observed,
};

use crate::peak::replayed::Origins;

/// A failed request and the memory right after it.
pub(super) struct Moment {
    /// Operation of the program.
    pub(super) op: usize,
    /// The failure.
    pub(super) failed: OutOfMemory,
    /// The segments, after the cache was flushed in vain.
    pub(super) views: Vec<SegmentView>,
    /// Where their blocks come from.
    pub(super) origins: Origins,
    /// Most bytes held until then.
    pub(super) peak: u64,
}

/// The first request that fails under these conditions.
pub(super) fn first(recording: &Recording, conditions: &Conditions) -> Option<Moment> {
    let mut watch = UntilFailure::default();
    let (program, calls) = (&recording.program, &recording.calls);
    let outcome = what_if_observed(program, calls, conditions, &mut watch, &mut NoHistory);
    let failed = outcome.ooms.first().copied()?;
    let (op, views) = watch.at?;
    let origins = watch.origins;
    let peak = u64::try_from(outcome.stats.all(Family::ReservedBytes).peak).unwrap_or(0);
    Some(Moment { op, failed, views, origins, peak })
}

/// Most bytes held under these conditions; `None` where a request fails.
pub(super) fn peak_under(recording: &Recording, conditions: &Conditions) -> Option<u64> {
    let outcome = what_if(&recording.program, &recording.calls, conditions);
    let peak = u64::try_from(outcome.stats.all(Family::ReservedBytes).peak).ok();
    peak.filter(|_| outcome.ooms.is_empty())
}

#[derive(Default)]
struct UntilFailure {
    at: Option<(usize, Vec<SegmentView>)>,
    origins: Origins,
}

impl Observer for UntilFailure {
    #[inline]
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool {
        if allocator.stats().num_ooms == 0 {
            return true;
        }
        self.at = Some((op, allocator.segments()));
        false
    }

    fn placed(&mut self, op: usize, addr: u64) {
        self.origins.placed(op, addr);
    }
}

/// Stream and pool of the request that `op` makes.
pub(super) fn route(program: &Program, op: usize) -> (u16, u16) {
    match program.ops.get(op) {
        Some(Op::Malloc { stream, pool, .. } | Op::Failed { stream, pool, .. }) => (*stream, *pool),
        _ => (0, 0),
    }
}

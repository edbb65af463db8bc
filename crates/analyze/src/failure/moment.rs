//! The moment at which a request fails in a replay.

use rustc_hash::FxHashMap;
use vramwise_model::device::Device;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, Entry, Recorder, SegmentView};
use vramwise_replay::{
    Conditions, Observer, Op, OutOfMemory, Program, Recording, what_if_observed,
};
use vramwise_types::Action;

/// A failed request and the memory right after it.
pub(super) struct Moment {
    /// Operation of the program.
    pub(super) op: usize,
    /// The failure.
    pub(super) failed: OutOfMemory,
    /// The segments, after the cache was flushed in vain.
    pub(super) views: Vec<SegmentView>,
    /// Most bytes held until then.
    pub(super) peak: u64,
    /// The operation that last allocated at each address. Those of a replay: they are not the recorded
    /// ones where the cache was flushed at other moments.
    pub(super) allocated_by: FxHashMap<u64, usize>,
}

/// The first request that fails under these conditions.
pub(super) fn first(recording: &Recording, conditions: &Conditions) -> Option<Moment> {
    let mut watch = UntilFailure::default();
    let (program, calls) = (&recording.program, &recording.calls);
    let mut placed = Placed::default();
    let outcome = what_if_observed(program, calls, conditions, &mut watch, &mut placed);
    let failed = outcome.ooms.first().copied()?;
    let (op, views) = watch.at?;
    // Every request before the one that failed found memory, in the order of the operations.
    let requests =
        (0..op).filter(|op| matches!(program.ops[*op], Op::Malloc { .. } | Op::Failed { .. }));
    let allocated_by = placed.0.into_iter().zip(requests).collect();
    let peak = u64::try_from(outcome.stats.all(Family::ReservedBytes).peak).unwrap_or(0);
    Some(Moment { op, failed, views, peak, allocated_by })
}

/// The addresses of the blocks in the order in which they were allocated.
#[derive(Default)]
struct Placed(Vec<u64>);

impl Recorder for Placed {
    #[inline]
    fn record(&mut self, entry: Entry) {
        if entry.action == Action::Alloc {
            self.0.push(entry.addr);
        }
    }
}

#[derive(Default)]
struct UntilFailure {
    at: Option<(usize, Vec<SegmentView>)>,
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
}

/// Stream and pool of the request that `op` makes.
pub(super) fn route(program: &Program, op: usize) -> (u16, u16) {
    match program.ops.get(op) {
        Some(Op::Malloc { stream, pool, .. } | Op::Failed { stream, pool, .. }) => (*stream, *pool),
        _ => (0, 0),
    }
}

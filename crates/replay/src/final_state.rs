//! Comparing the model's segments and blocks with the snapshot's (specification §16.4).

use vramwise_model::device::Device;
use vramwise_model::{Allocator, BlockState, SegmentView};
use vramwise_trace as trace;
use vramwise_trace::DeviceTrace;

use crate::history::History;
use crate::pools::PoolMap;

/// The first difference, as a sentence; `None` where everything agrees.
///
/// A free block keeps the requested size of its last use. Where the recording began in mid-run
/// (`from_empty` is false), that use may lie before it and is not compared.
pub(crate) fn difference<D: Device>(
    device: &DeviceTrace,
    allocator: &Allocator<D>,
    history: &History,
    pools: &PoolMap,
    from_empty: bool,
) -> Option<String> {
    let got = allocator.segments();
    if got.len() != device.segments.len() {
        return Some(format!(
            "the snapshot has {} segments, the model {}",
            device.segments.len(),
            got.len()
        ));
    }
    got.iter().zip(&device.segments).find_map(|(got, want)| {
        segment(got, want, device, history, pools, from_empty)
            .map(|what| format!("segment at {:#x}: {what}", want.address))
    })
}

fn segment(
    got: &SegmentView,
    want: &trace::Segment,
    device: &DeviceTrace,
    history: &History,
    pools: &PoolMap,
    from_empty: bool,
) -> Option<String> {
    let small = want.kind == trace::SegmentKind::Small;
    let handle = history.streams.get(got.stream.0 as usize).copied().unwrap_or(0);
    let pool = pools.ids().get(got.pool.0 as usize).copied().unwrap_or((0, 0));
    let facts = [
        ("address", got.addr, want.address),
        ("size", got.size, want.total_size),
        ("stream", handle, want.stream),
        ("small pool", u64::from(got.small), u64::from(small)),
        ("expandable", u64::from(got.expandable), u64::from(want.is_expandable)),
        ("pool id", pool.0, want.pool_id.0),
        ("pool id", pool.1, want.pool_id.1),
    ];
    for (what, got, want) in facts {
        if got != want {
            return Some(format!("{what} is {want:#x} in the snapshot, {got:#x} in the model"));
        }
    }
    let range = want.blocks.start as usize..want.blocks.end as usize;
    let blocks = device.blocks.get(range).unwrap_or_default();
    if blocks.len() != got.blocks.len() {
        return Some(format!("{} blocks, {} in the model", blocks.len(), got.blocks.len()));
    }
    for (got, want) in got.blocks.iter().zip(blocks) {
        let state = match got.state {
            BlockState::ActiveAllocated => trace::BlockState::ActiveAllocated,
            BlockState::ActivePendingFree => trace::BlockState::ActivePendingFree,
            BlockState::Inactive => trace::BlockState::Inactive,
        };
        let (at, state_agrees) = (want.address, state == want.state);
        if (got.addr, got.size) != (want.address, want.size) || !state_agrees {
            return Some(format!(
                "block at {at:#x} of {} bytes is {}; the model has {} bytes at {:#x}, {}",
                want.size,
                want.state.name(),
                got.size,
                got.addr,
                state.name()
            ));
        }
        let stale = want.state == trace::BlockState::Inactive && !from_empty;
        if got.requested != want.requested_size && !stale {
            return Some(format!(
                "block at {at:#x}: requested size {} in the snapshot, {} in the model",
                want.requested_size, got.requested
            ));
        }
    }
    None
}

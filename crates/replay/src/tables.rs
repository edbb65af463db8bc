//! The model's segments as the tables of a snapshot.

use vramwise_model::{BlockState, BlockView, SegmentView};
use vramwise_trace as trace;
use vramwise_trace::{DeviceTrace, StackId};

/// Segments and blocks without stacks; the history is empty.
pub(crate) fn state(
    segments: &[SegmentView],
    streams: &[u64],
    pool_ids: &[(u64, u64)],
) -> DeviceTrace {
    let mut device = DeviceTrace::default();
    for segment in segments {
        let first = device.blocks.len();
        let sum = |f: &dyn Fn(&BlockView) -> bool, size: bool| {
            let chosen = segment.blocks.iter().filter(|b| f(b));
            chosen.map(|b| if size { b.size } else { b.requested }).sum()
        };
        let active = |b: &BlockView| b.state != BlockState::Inactive;
        device.segments.push(trace::Segment {
            address: segment.addr,
            total_size: segment.size,
            allocated_size: sum(&|b| b.state == BlockState::ActiveAllocated, true),
            active_size: sum(&active, true),
            requested_size: sum(&active, false),
            stream: streams.get(segment.stream.0 as usize).copied().unwrap_or(0),
            kind: if segment.small { trace::SegmentKind::Small } else { trace::SegmentKind::Large },
            pool_id: pool_ids.get(segment.pool.0 as usize).copied().unwrap_or((0, 0)),
            is_expandable: segment.expandable,
            stack: StackId::NONE,
            blocks: narrow(first)..narrow(first + segment.blocks.len()),
        });
        device.blocks.extend(segment.blocks.iter().map(|b| trace::Block {
            address: b.addr,
            size: b.size,
            requested_size: b.requested,
            state: match b.state {
                BlockState::ActiveAllocated => trace::BlockState::ActiveAllocated,
                BlockState::ActivePendingFree => trace::BlockState::ActivePendingFree,
                BlockState::Inactive => trace::BlockState::Inactive,
            },
            stack: StackId::NONE,
        }));
    }
    device
}

fn narrow(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

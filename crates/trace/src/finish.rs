//! From single rows to their final form: computing what older files leave out.

use std::ops::Range;

use crate::row_types::{AnnotationRow, BlockRow, SegmentRow};
use crate::snapshot::{Annotation, Block, BlockState, Segment, SegmentKind};
use crate::tables::{StringId, StringTable};

pub(crate) fn finish_block(row: &BlockRow, next: u64) -> Block {
    let stand_in = if row.state == BlockState::Inactive { 0 } else { row.size };
    Block {
        address: row.address.unwrap_or(next),
        size: row.size,
        requested_size: row.requested_size.unwrap_or(stand_in),
        state: row.state,
        stack: row.stack,
    }
}

pub(crate) fn finish_segment(row: &SegmentRow, blocks: &[Block], range: Range<u32>) -> Segment {
    let own = &blocks[range.start as usize..range.end as usize];
    let sum = |of: fn(&Block) -> u64, states: &[BlockState]| {
        let counted = own.iter().filter(|b| states.contains(&b.state));
        counted.fold(0u64, |n, b| n.saturating_add(of(b)))
    };
    let allocated = [BlockState::ActiveAllocated];
    let active = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
    let size: fn(&Block) -> u64 = |b| b.size;
    let by_size = || match row.total_size {
        0..=0x20_0000 => SegmentKind::Small,
        _ => SegmentKind::Large,
    };
    Segment {
        address: row.address,
        total_size: row.total_size,
        allocated_size: row.allocated_size.unwrap_or_else(|| sum(size, &allocated)),
        active_size: row.active_size.unwrap_or_else(|| sum(size, &active)),
        requested_size: row.requested_size.unwrap_or_else(|| sum(|b| b.requested_size, &active)),
        stream: row.stream,
        kind: row.kind.unwrap_or_else(by_size),
        pool_id: row.pool_id,
        is_expandable: row.is_expandable,
        stack: row.stack,
        blocks: range,
    }
}

pub(crate) fn finish_annotation(row: &AnnotationRow, strings: &mut StringTable) -> Annotation {
    Annotation {
        name: row.name.map_or_else(|| strings.intern("?"), |id| StringId(id.0)),
        is_start: row.is_start,
        device: row.device.and_then(|d| u32::try_from(d).ok()),
        time_us: row.time_us,
    }
}

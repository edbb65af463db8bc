//! Where the blocks and the free memory of a moment are, seen from a request.

use vramwise_trace::BlockState;

use super::Account;
use crate::peak::state::{Held, State};

/// Where a request may take memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The stream's handle.
    pub(super) stream: u64,
    /// The pool.
    pub(super) pool: (u64, u64),
    /// Whether the small half of it.
    pub(super) small: bool,
}

/// Adds what the blocks of a state are to the account, and where the segments are known, their free
/// memory.
pub(super) fn count(account: &mut Account, state: &State, route: Route) {
    for piece in &state.blocks {
        match piece.state {
            BlockState::ActiveAllocated => {
                account.allocated = account.allocated.saturating_add(piece.size);
                account.requested = account.requested.saturating_add(piece.requested);
            }
            BlockState::ActivePendingFree => {
                account.pending = account.pending.saturating_add(piece.size);
            }
            BlockState::Inactive => {}
        }
    }
    for segment in state.segments.iter().flatten() {
        let (sum, largest) = free(state, segment);
        if segment.pool != route.pool || segment.small != route.small {
            account.free_pools = account.free_pools.saturating_add(sum);
            if segment.pool != (0, 0) && segment.pool != route.pool {
                account.free_private = account.free_private.saturating_add(sum);
            }
        } else if segment.stream != route.stream {
            account.free_streams = account.free_streams.saturating_add(sum);
        } else {
            account.free_own = account.free_own.saturating_add(sum);
            account.largest_own = account.largest_own.max(largest);
        }
    }
}

/// Free bytes of a segment, and the largest free block.
fn free(state: &State, segment: &Held) -> (u64, u64) {
    let blocks = state.blocks[segment.blocks.clone()].iter();
    let sizes = blocks.filter(|b| b.state == BlockState::Inactive).map(|b| b.size);
    sizes.fold((0, 0), |(sum, most): (u64, u64), size| (sum.saturating_add(size), most.max(size)))
}

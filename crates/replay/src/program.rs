//! What the program did, without the addresses: the input of every what-if replay.

use vramwise_model::PoolIndex;

/// One operation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Allocates `size` bytes; `slot` names the allocation from here on.
    Malloc {
        /// Requested bytes.
        size: u64,
        /// Index into [`Program::streams`].
        stream: u16,
        /// Pool that the request was routed to.
        pool: u16,
        /// Name of the allocation.
        slot: u32,
    },
    /// A request that ran out of memory when it was recorded; `size` is the rounded one.
    Failed {
        /// Rounded bytes.
        size: u64,
        /// Index into [`Program::streams`].
        stream: u16,
        /// Pool that the request was routed to.
        pool: u16,
    },
    /// Frees an allocation that no other stream uses.
    Free {
        /// Name of the allocation.
        slot: u32,
    },
    /// Frees an allocation that other streams still use.
    FreePending {
        /// Name of the allocation.
        slot: u32,
    },
    /// The other streams are done with a pending allocation.
    Complete {
        /// Name of the allocation.
        slot: u32,
    },
    /// `empty_cache()` or the end of a `MemPool`.
    Release {
        /// Index into [`Program::scopes`].
        scope: u32,
    },
}

/// What a release call covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseScope {
    /// Whether the default pool was released.
    pub default: bool,
    /// The private pools released, in order.
    pub private: Vec<PoolIndex>,
}

/// The operations of one device in order.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The operations.
    pub ops: Vec<Op>,
    /// For each operation the event of the file that it began with.
    pub events: Vec<u32>,
    /// Stream handles.
    pub streams: Vec<u64>,
    /// Scopes of [`Op::Release`].
    pub scopes: Vec<ReleaseScope>,
    /// Number of allocations that [`Op::Malloc`] names: slots are `0..slots`.
    pub slots: u32,
    /// Number of pools, the default one included.
    pub pools: u16,
    /// Pools whose blocks are never split (`MemPool(no_split=True)`), ascending.
    pub no_split: Vec<u16>,
    /// Operations at the start that stand for what was allocated before the recording began.
    pub preamble: usize,
}

impl Program {
    /// Number of [`Op::Malloc`] and [`Op::Failed`].
    pub fn requests(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::Malloc { .. } | Op::Failed { .. })).count()
    }

    /// Highest sum of requested bytes that were allocated or pending at one time: what any allocator
    /// must hold at least.
    pub fn peak_live_bytes(&self) -> u64 {
        let mut sizes = vec![0u64; self.slots as usize];
        let (mut live, mut peak) = (0u64, 0u64);
        for op in &self.ops {
            match *op {
                Op::Malloc { size, slot, .. } => {
                    sizes[slot as usize] = size;
                    live += size;
                    peak = peak.max(live);
                }
                Op::Free { slot } | Op::Complete { slot } => live -= sizes[slot as usize],
                Op::Failed { .. } | Op::FreePending { .. } | Op::Release { .. } => {}
            }
        }
        peak
    }
}

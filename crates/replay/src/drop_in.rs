//! What-if: the recovered program under vramwise's own allocator, from the code that runs on a GPU.

use vramwise_arena::{AllocError, Calls, Heap, Params, PoolId, SimDevice, Stats};

use crate::program::{Op, Program};

/// What the drop-in allocator would have come to.
#[derive(Clone, Debug, PartialEq)]
pub struct DropIn {
    /// Most bytes of physical memory held at one time.
    pub peak_held_bytes: u64,
    /// Most bytes of requests that were in use at one time, not rounded: what any allocator needs.
    pub peak_requested_bytes: u64,
    /// Most bytes that were in use in private pools, each pool's own peak added up: their memory can't be lent.
    pub private_peaks_bytes: u64,
    /// Requests without memory: event of the file, bytes.
    pub ooms: Vec<(usize, u64)>,
    /// Counters at the end.
    pub stats: Stats,
    /// Calls to the driver.
    pub calls: Calls,
}

impl DropIn {
    /// Memory held ÷ memory needed, at their peaks; `None` for a program that asks for nothing.
    pub fn ratio(&self) -> Option<f64> {
        (self.peak_requested_bytes > 0)
            .then(|| self.peak_held_bytes as f64 / self.peak_requested_bytes as f64)
    }
}

/// Replays a program under the drop-in allocator on a card of `total` bytes. The GPU is as fast as the host here: what
/// other streams still use comes back where the recording says so.
pub fn drop_in(program: &Program, params: Params, total: u64) -> DropIn {
    let mut heap = Heap::new(SimDevice::new(total), params);
    let mut slots = vec![Slot::default(); program.slots as usize];
    let mut ooms = Vec::new();
    let mut pools = vec![(0u64, 0u64); usize::from(program.pools).max(1)];
    for pool in 1..program.pools {
        // A new pool of a new heap: this can't fail.
        let _ = heap.pool_retain(id(pool));
    }
    let (mut live, mut peak) = (0u64, 0u64);
    for (op, event) in program.ops.iter().zip(&program.events) {
        match *op {
            Op::Malloc { size, stream, pool, slot } => {
                let asked = heap.alloc(program.streams[usize::from(stream)], size, id(pool));
                match asked {
                    Ok(block) => slots[slot as usize] = Slot { address: block.address, size, pool },
                    Err(_) => ooms.push((*event as usize, size)),
                }
                if asked.is_ok() {
                    live += size;
                    let pool = &mut pools[usize::from(pool)];
                    pool.0 += size;
                    pool.1 = pool.1.max(pool.0);
                }
                peak = peak.max(live);
            }
            Op::Failed { size, stream, pool } => {
                // The program never had this memory; whether it would have got it is what counts.
                match heap.alloc(program.streams[usize::from(stream)], size, id(pool)) {
                    Ok(block) => {
                        peak = peak.max(live + size);
                        let _ = heap.free(block.address);
                    }
                    Err(AllocError::OutOfMemory) => ooms.push((*event as usize, size)),
                    Err(_) => {}
                }
            }
            // Until other streams are done the memory is in use; then it is freed at once.
            Op::FreePending { .. } => {}
            Op::Free { slot } | Op::Complete { slot } => {
                let Slot { address, size, pool } = std::mem::take(&mut slots[slot as usize]);
                if heap.free(address).is_some() {
                    live -= size;
                    pools[usize::from(pool)].0 -= size;
                }
            }
            Op::Release { scope } => {
                let scope = &program.scopes[scope as usize];
                for pool in &scope.private {
                    while heap.pool_users(id(pool.0 as u16)).is_some_and(|users| users > 0) {
                        let _ = heap.pool_release(id(pool.0 as u16));
                    }
                    let _ = heap.empty_cache(id(pool.0 as u16));
                }
                if scope.default {
                    let _ = heap.empty_cache(PoolId::DEFAULT);
                }
            }
        }
    }
    DropIn {
        peak_held_bytes: heap.device().peak(),
        peak_requested_bytes: peak,
        private_peaks_bytes: pools.iter().skip(1).map(|p| p.1).sum(),
        ooms,
        stats: heap.stats(),
        calls: heap.device().calls(),
    }
}

/// Where a named allocation is.
#[derive(Clone, Copy, Default)]
struct Slot {
    address: u64,
    size: u64,
    pool: u16,
}

fn id(pool: u16) -> PoolId {
    if pool == 0 { PoolId::DEFAULT } else { PoolId(0, u64::from(pool)) }
}

//! What-if: the recovered program under other settings, limits and addresses (specification §16.6).

use std::sync::Arc;

use vramwise_model::device::{
    Device, DeviceCall, FallingPlacement, ListedPlacement, Placement, RecordedPlacement,
    RisingPlacement, ShuffledPlacement, SimDevice,
};
use vramwise_model::settings::Config;
use vramwise_model::stats::Stats;
use vramwise_model::{Allocator, BlockId, NoHistory, PoolIndex, PoolOptions, Recorder, Scope};
use vramwise_types::TorchVersion;

use crate::program::{Op, Program};

/// The card that a replay assumes where nothing says how large it was: far more than any card has.
/// Only the address space of expandable segments depends on it.
pub const ANY_CARD: u64 = 1 << 46;

/// Where new segments go. Between free blocks of equal size the lower address wins, so that this can
/// matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The recorded addresses while the device calls are the recorded ones, then the driver as measured
    /// on an H200 (specification §17.4): the best guess.
    Driver,
    /// The n-th new segment gets the n-th of these.
    Listed(Arc<[u64]>),
    /// Rising.
    Rising,
    /// Falling.
    Falling,
    /// An order that belongs to a seed.
    Shuffled(u64),
}

/// Conditions of a what-if replay.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The settings.
    pub config: Config,
    /// Changes of settings in mid-run: (event of the file, settings), ascending.
    pub changes: Vec<(usize, Config)>,
    /// PyTorch's version.
    pub version: TorchVersion,
    /// Bytes that the process may hold; `None` = no limit.
    pub limit: Option<u64>,
    /// The card's bytes; `None` = unknown.
    pub total: Option<u64>,
    /// The address model.
    pub addresses: Addresses,
}

impl Conditions {
    /// These settings, no limit, addresses by the driver's model.
    pub fn new(config: Config, version: TorchVersion) -> Self {
        Self {
            config,
            changes: Vec::new(),
            version,
            limit: None,
            total: None,
            addresses: Addresses::Driver,
        }
    }
}

/// A request that found no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Event of the file at which the request stands.
    pub event: usize,
    /// Requested bytes (rounded where the recording failed there too).
    pub requested: u64,
    /// Bytes asked of the device, as in "Tried to allocate".
    pub segment: u64,
    /// Bytes allocated at that moment.
    pub allocated: u64,
    /// Bytes held at that moment.
    pub reserved: u64,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All counters at the end.
    pub stats: Stats,
    /// Requests without memory, in order.
    pub ooms: Vec<OutOfMemory>,
    /// Lookups in which only the address decided.
    pub ties: u64,
    /// Times that the real allocator would have lost a private pool's record (§6.7).
    pub lost_pools: u64,
    /// Whether the run was ended at its first failed request.
    pub stopped: bool,
}

/// Sees the allocator after each operation.
pub trait Observer {
    /// Called after operation `op` of the program; `false` ends the replay.
    fn after<D: Device>(&mut self, op: usize, allocator: &Allocator<D>) -> bool;

    /// Called when operation `op` of the program has got a block, with its address in this replay.
    #[inline]
    fn placed(&mut self, _op: usize, _addr: u64) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    #[inline]
    fn after<D: Device>(&mut self, _op: usize, _allocator: &Allocator<D>) -> bool {
        true
    }
}

/// Replays a program.
pub fn what_if(program: &Program, calls: &Arc<[DeviceCall]>, conditions: &Conditions) -> Outcome {
    what_if_observed(program, calls, conditions, &mut Unobserved, &mut NoHistory)
}

/// Replays a program, shows the allocator to `observer` and records the history it would have written.
pub fn what_if_observed(
    program: &Program,
    calls: &Arc<[DeviceCall]>,
    conditions: &Conditions,
    observer: &mut impl Observer,
    history: &mut impl Recorder,
) -> Outcome {
    match &conditions.addresses {
        Addresses::Driver => {
            let placement = RecordedPlacement::new(Arc::clone(calls));
            run(program, conditions, placement, observer, history)
        }
        Addresses::Listed(addrs) => {
            run(program, conditions, ListedPlacement::new(Arc::clone(addrs)), observer, history)
        }
        Addresses::Rising => {
            run(program, conditions, RisingPlacement::default(), observer, history)
        }
        Addresses::Falling => {
            run(program, conditions, FallingPlacement::default(), observer, history)
        }
        Addresses::Shuffled(seed) => {
            run(program, conditions, ShuffledPlacement::new(*seed), observer, history)
        }
    }
}

/// A replay in progress: an allocator and the blocks that the program's names stand for.
struct Replay<'a, D> {
    allocator: Allocator<D>,
    program: &'a Program,
    blocks: Vec<BlockId>,
    ooms: Vec<OutOfMemory>,
}

fn run<P: Placement>(
    program: &Program,
    conditions: &Conditions,
    placement: P,
    observer: &mut impl Observer,
    history: &mut impl Recorder,
) -> Outcome {
    // The limit stands for the card: the device itself never refuses.
    let total = conditions.total.unwrap_or(ANY_CARD);
    let device = SimDevice::new(total, placement);
    let mut allocator = Allocator::new(conditions.config.clone(), conditions.version, device);
    if conditions.limit.is_some() {
        let tighter = |own: Option<u64>| own.into_iter().chain(conditions.limit).min();
        allocator.set_limit(tighter(allocator.limit()));
    }
    for handle in &program.streams {
        allocator.stream(*handle);
    }
    for pool in 1..program.pools {
        let no_split = program.no_split.contains(&pool);
        allocator.create_pool(PoolOptions { no_split, ..PoolOptions::default() });
    }
    let blocks = vec![BlockId::NULL; program.slots as usize];
    let mut replay = Replay { allocator, program, blocks, ooms: Vec::new() };
    let mut changes = conditions.changes.iter().peekable();
    let mut stopped = false;
    for (i, op) in program.ops.iter().enumerate() {
        while let Some((event, config)) = changes.peek()
            && *event <= program.events[i] as usize
        {
            replay.allocator.set_config(config.clone());
            changes.next();
        }
        replay.step(i, *op, observer, history);
        if !observer.after(i, &replay.allocator) {
            stopped = true;
            break;
        }
    }
    Outcome {
        stats: replay.allocator.stats().clone(),
        ooms: replay.ooms,
        ties: replay.allocator.ties(),
        lost_pools: replay.allocator.lost_pools(),
        stopped,
    }
}

impl<D: Device> Replay<'_, D> {
    #[inline]
    fn step(
        &mut self,
        i: usize,
        op: Op,
        observer: &mut impl Observer,
        history: &mut impl Recorder,
    ) {
        match op {
            Op::Malloc { size, stream, pool, slot } => {
                if let Some(block) = self.malloc(i, size, stream, pool, history) {
                    observer.placed(i, self.allocator.address(block));
                    self.blocks[slot as usize] = block;
                }
            }
            Op::Failed { size, stream, pool } => {
                // What the program would have done with the memory is unknown: it gives it back.
                if let Some(block) = self.malloc(i, size, stream, pool, history) {
                    self.allocator.free(block, history);
                }
            }
            Op::Free { slot } => {
                let block = std::mem::replace(&mut self.blocks[slot as usize], BlockId::NULL);
                self.allocator.free(block, history);
            }
            Op::FreePending { slot } => {
                self.allocator.free_pending(self.blocks[slot as usize], history);
            }
            Op::Complete { slot } => {
                let block = std::mem::replace(&mut self.blocks[slot as usize], BlockId::NULL);
                self.allocator.complete(block, history);
            }
            Op::Release { scope } => {
                let scope = &self.program.scopes[scope as usize];
                for pool in &scope.private {
                    self.allocator.set_freeable(*pool, true);
                }
                let scope = Scope::exactly(scope.default, scope.private.clone());
                self.allocator.release_cached(&scope, history);
            }
        }
    }

    #[inline]
    fn malloc(
        &mut self,
        i: usize,
        size: u64,
        stream: u16,
        pool: u16,
        history: &mut impl Recorder,
    ) -> Option<BlockId> {
        let stream = vramwise_model::StreamIndex(u32::from(stream));
        let pool = PoolIndex(u32::from(pool));
        let routing = pool != PoolIndex::DEFAULT;
        match self.allocator.malloc_from(pool, size, stream, routing, history) {
            Ok(block) => Some(block),
            Err(error) => {
                let segment = match error {
                    vramwise_model::MallocError::OutOfMemory { segment, .. } => segment,
                    vramwise_model::MallocError::TooLarge(size) => size,
                };
                let allocated = self
                    .allocator
                    .stats()
                    .all(vramwise_model::stats::Family::AllocatedBytes)
                    .current;
                self.ooms.push(OutOfMemory {
                    event: self.program.events[i] as usize,
                    requested: size,
                    segment,
                    allocated: u64::try_from(allocated).unwrap_or(0),
                    reserved: self.allocator.reserved_bytes(),
                });
                None
            }
        }
    }
}

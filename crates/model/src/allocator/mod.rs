//! The state machine: what `malloc`, `free`, `record_stream`, `empty_cache` and pools do.
//!
//! One [`Allocator`] models one device. It follows the specification section by section; the files are
//! named after what the program asks for. It does no I/O and reads no clock; everything outside comes
//! through [`Device`].

mod events;
mod expandable;
mod free;
mod malloc;
mod pools;
mod release;
mod restore;

use std::collections::{BTreeMap, VecDeque};

use vramwise_types::{Action, TorchVersion};

use crate::block::{Block, BlockId, Blocks, EXPANDABLE, FREE, MAPPED, NONE};
use crate::device::Device;
use crate::free_set::Entry as FreeEntry;
use crate::history::{Entry, Recorder};
use crate::pool::{Half, Pool, PoolIndex, PoolOptions};
use crate::settings::Config;
use crate::stats::Stats;
use crate::ties::TieRule;

pub use malloc::MallocError;
pub use pools::{Filter, ThreadId};
pub use release::Scope;
pub use restore::Restored;

/// Index of a stream, given by [`Allocator::stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamIndex(pub u32);

impl StreamIndex {
    /// The default stream (handle 0).
    pub const DEFAULT: StreamIndex = StreamIndex(0);
}

/// Address space reserved for an expandable segment.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// Physical memory comes in pieces of this size.
    pub(crate) granule: u64,
    pub(crate) live: bool,
}

/// Stream uses of a block that was used on streams other than its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// (stream, recorded while a capture or pool routing was under way)
    streams: Vec<(u32, bool)>,
}

/// PyTorch's caching allocator for one device.
#[derive(Clone, Debug)]
pub struct Allocator<D> {
    pub(crate) config: Config,
    version: TorchVersion,
    /// Bytes that the process may hold (`set_per_process_memory_fraction`); `None` = no limit.
    limit: Option<u64>,
    device: D,
    pub(crate) blocks: Blocks,
    /// What decides among free blocks of equal size.
    pub(crate) tie_rule: TieRule,
    pub(crate) pools: Vec<Pool>,
    pub(crate) reservations: Vec<Reservation>,
    /// Stream handles by index.
    pub(crate) streams: Vec<u64>,
    /// Stream indices, ascending by handle: the order of every walk over a pool.
    stream_order: Vec<u32>,
    routes: Vec<pools::Route>,
    uses: BTreeMap<u32, Uses>,
    /// Blocks freed while a route was active that other streams may still use.
    deferred: Vec<u32>,
    /// Per stream: events that blocks wait for, oldest first.
    events: Vec<VecDeque<(u64, u32)>>,
    /// Blocks whose completion is told by [`Allocator::complete`], in the order of their frees.
    told: Vec<u32>,
    pub(crate) reserved: u64,
    pub(crate) stats: Stats,
    /// Lookups that found a second free block of the same size: addresses decided.
    ties: u64,
    /// A private pool's record would have been dropped while it held memory (§6.7).
    lost_pools: u64,
    /// Private pools that a flush takes first.
    release_order: Vec<PoolIndex>,
    /// Segments and reservations made so far.
    segments_made: u64,
}

impl<D: Device> Allocator<D> {
    /// An allocator with an empty cache. `per_process_memory_fraction` in the settings sets a limit
    /// from the device's total memory.
    pub fn new(config: Config, version: TorchVersion, device: D) -> Self {
        let limit = fraction_limit(config.per_process_memory_fraction, device.total_bytes());
        let stats = Stats::new(config.max_split_size);
        let tie_rule = TieRule::of(version);
        Self {
            config,
            version,
            limit,
            device,
            blocks: Blocks::new(tie_rule),
            tie_rule,
            pools: vec![Pool::new(PoolOptions::default(), 1)],
            reservations: Vec::new(),
            streams: vec![0],
            stream_order: vec![0],
            routes: Vec::new(),
            uses: BTreeMap::new(),
            deferred: Vec::new(),
            events: vec![VecDeque::new()],
            told: Vec::new(),
            reserved: 0,
            stats,
            ties: 0,
            lost_pools: 0,
            release_order: Vec::new(),
            segments_made: 0,
        }
    }

    /// The rank of the blocks of a new segment at `addr`.
    fn next_rank(&mut self, addr: u64) -> u64 {
        self.segments_made += 1;
        self.tie_rule.rank(self.segments_made, addr)
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the settings in mid-run, as `torch.cuda.memory._set_allocator_settings` does. The limit
    /// and `max_split_size` in [`Stats`] stay as they were (specification §7.1, §9.3).
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// Limits the bytes that the process may hold; `None` lifts the limit.
    pub fn set_limit(&mut self, bytes: Option<u64>) {
        self.limit = bytes;
    }

    /// `set_per_process_memory_fraction`: 1.0 lifts the limit (§4.3).
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        self.limit = fraction_limit(fraction, self.device.total_bytes());
    }

    /// The limit in bytes.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to be told things.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The counters, for resets.
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Bytes held from the device.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    /// Lookups so far in which only the address decided between two free blocks of equal size.
    pub fn ties(&self) -> u64 {
        self.ties
    }

    /// Times that PyTorch 2.11 would have lost track of a private pool that still held memory: from
    /// there on the real allocator's behaviour is undefined (§6.7).
    pub fn lost_pools(&self) -> u64 {
        self.lost_pools
    }

    /// The index of a stream handle; handle 0 is the default stream.
    pub fn stream(&mut self, handle: u64) -> StreamIndex {
        if let Some(i) = self.streams.iter().position(|h| *h == handle) {
            return StreamIndex(index(i));
        }
        let new = index(self.streams.len());
        self.streams.push(handle);
        self.events.push(VecDeque::new());
        let streams = &self.streams;
        let at = self.stream_order.partition_point(|s| streams[*s as usize] < handle);
        self.stream_order.insert(at, new);
        StreamIndex(new)
    }

    /// The handle of a stream.
    pub fn stream_handle(&self, stream: StreamIndex) -> u64 {
        self.streams[stream.0 as usize]
    }

    /// Address of a block.
    pub fn address(&self, block: BlockId) -> u64 {
        if block == BlockId::NULL { 0 } else { self.blocks[block.0].addr }
    }

    /// Size of a block in bytes (not the requested size).
    pub fn block_size(&self, block: BlockId) -> u64 {
        if block == BlockId::NULL { 0 } else { self.blocks[block.0].size }
    }

    /// Bytes last requested of a block.
    pub fn requested_size(&self, block: BlockId) -> u64 {
        if block == BlockId::NULL { 0 } else { self.blocks[block.0].requested }
    }

    /// Largest free mapped block over all pools and streams, bytes.
    pub fn largest_free_block(&self) -> u64 {
        let sets = self.pools.iter().flat_map(|p| &p.halves).flat_map(|h| &h.free);
        sets.filter_map(|set| set.iter().next_back()).map(|e| e.size).max().unwrap_or(0)
    }

    fn record(&self, recorder: &mut impl Recorder, action: Action, block: &Block) {
        let size = match action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => block.requested,
            _ => block.size,
        };
        recorder.record(Entry { action, addr: block.addr, size, stream: block.stream });
    }

    fn half(&mut self, half: u32) -> &mut Half {
        &mut self.pools[(half / 2) as usize].halves[(half % 2) as usize]
    }

    fn half_ref(&self, half: u32) -> &Half {
        &self.pools[(half / 2) as usize].halves[(half % 2) as usize]
    }

    /// Puts a mapped block into its free set and stamps it.
    fn insert_free(&mut self, id: u32) {
        let block = &mut self.blocks[id];
        block.flags |= FREE;
        let half = &mut self.pools[(block.half / 2) as usize].halves[(block.half % 2) as usize];
        block.stamp = half.lookups;
        half.free_of(block.stream).insert(block.size, self.tie_rule.order(block), id);
    }

    fn remove_free(&mut self, id: u32) {
        let block = &mut self.blocks[id];
        block.flags &= !FREE;
        let half = &mut self.pools[(block.half / 2) as usize].halves[(block.half % 2) as usize];
        half.free_of(block.stream).remove(block.size, self.tie_rule.order(block));
    }

    fn insert_unmapped(&mut self, id: u32) {
        let block = &mut self.blocks[id];
        block.flags |= FREE;
        let half = &mut self.pools[(block.half / 2) as usize].halves[(block.half % 2) as usize];
        half.unmapped_of(block.stream).insert(block.addr, id);
    }

    fn remove_unmapped(&mut self, id: u32) {
        let block = &mut self.blocks[id];
        block.flags &= !FREE;
        let half = &mut self.pools[(block.half / 2) as usize].halves[(block.half % 2) as usize];
        half.unmapped_of(block.stream).remove(&block.addr);
    }

    /// Lets `into` absorb its neighbour `from`, if that is free and in the same mapped state
    /// (§3.3). Returns the bytes gained, 0 if nothing was absorbed.
    fn absorb(&mut self, into: u32, from: u32) -> u64 {
        if from == NONE {
            return 0;
        }
        let (block, other) = (&self.blocks[into], &self.blocks[from]);
        if !other.has(FREE) || other.has(MAPPED) != block.has(MAPPED) {
            return 0;
        }
        if other.has(MAPPED) {
            self.remove_free(from);
        } else {
            self.remove_unmapped(from);
        }
        let Block { addr, size, prev, next, .. } = self.blocks[from];
        let block = &mut self.blocks[into];
        block.size += size;
        if block.prev == from {
            block.addr = addr;
            block.prev = prev;
            if prev != NONE {
                self.blocks[prev].next = into;
            }
        } else {
            block.next = next;
            if next != NONE {
                self.blocks[next].prev = into;
            }
        }
        self.blocks.drop(from);
        size
    }

    /// Cuts the front `size` bytes off `id`: the front is a new block, `id` keeps the rest (§3.2).
    fn split_front(&mut self, id: u32, size: u64) -> u32 {
        let rest = &self.blocks[id];
        let front = Block { size, requested: 0, next: id, ..rest.clone() };
        let prev = front.prev;
        let front = self.blocks.add(front);
        if prev != NONE {
            self.blocks[prev].next = front;
        }
        let rest = &mut self.blocks[id];
        rest.addr += size;
        rest.size -= size;
        rest.prev = front;
        front
    }

    /// The free entries of one half in the order of its set: stream handle, size, address.
    fn walk(&self, half: u32) -> impl Iterator<Item = FreeEntry> + '_ {
        let half = self.half_ref(half);
        self.stream_order
            .iter()
            .filter_map(move |s| half.free.get(*s as usize))
            .flat_map(crate::free_set::FreeSet::iter)
    }

    fn is_expandable(&self, id: u32) -> bool {
        self.blocks[id].has(EXPANDABLE)
    }
}

/// Allowed bytes for a fraction of `total`; 1.0 means no limit.
fn fraction_limit(fraction: f64, total: u64) -> Option<u64> {
    // PyTorch computes in double precision and truncates; so does this.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (fraction < 1.0).then_some((fraction * total as f64) as u64)
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("fewer than 2^32 streams, pools and reservations")
}

/// Bytes as a signed change of a counter.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("sizes are below 2^60")
}

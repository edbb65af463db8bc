//! A second allocator, written from the specification alone, literally and slowly.
//!
//! It shares no code with the model, only plain data types (settings, history entries, views) and the
//! simulated device. There are no free lists, no links and no block table: a segment is a list of
//! blocks in address order, a lookup scans and sorts everything that is free, and the current values
//! can be added up from the blocks ([`Reference::sums`]). A free block is found by its address, which
//! is unique. Each rare branch leaves a mark in [`Reference::branches`], so that a test can demand
//! that a random run met all of them.
//!
//! Where PyTorch leaves an order open (streams, private pools), the order is that of the indices.

mod expandable;
mod free;
mod malloc;
mod release;
mod sizes;
mod stats;

use std::collections::BTreeMap;

use vramwise_model::device::Device;
use vramwise_model::settings::Config;
use vramwise_model::{
    BlockState, BlockView, Entry, Filter, PoolIndex, PoolOptions, SegmentView, StreamIndex,
    ThreadId,
};
use vramwise_types::{Action, TorchVersion};

pub use stats::{Counters, Quadruple, Sums};

#[derive(Clone, Debug)]
struct Block {
    /// Number of the object in the order of creation.
    number: u64,
    addr: u64,
    size: u64,
    /// Size of the last request of this object, stale when free.
    requested: u64,
    allocated: bool,
    mapped: bool,
    /// Events that must pass, and uses on other streams since the hand-out (stream, during routing).
    events: u32,
    uses: Vec<(u32, bool)>,
    /// Lookup counter of the pool when it became free.
    stamp: u64,
}

impl Block {
    fn is_free(&self) -> bool {
        !self.allocated && self.events == 0 && self.uses.is_empty()
    }
}

#[derive(Clone, Debug)]
struct Segment {
    /// Number in the order of creation.
    number: u64,
    base: u64,
    size: u64,
    pool: usize,
    small: bool,
    stream: u32,
    /// For expandable segments: bytes of a physical piece.
    granule: Option<u64>,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Pool {
    options: PoolOptions,
    users: u32,
    segments: i64,
    /// Lookup counters: large, small.
    lookups: [u64; 2],
}

/// What one malloc wants.
#[derive(Clone, Copy, Debug)]
struct Request {
    requested: u64,
    size: u64,
    seg: u64,
    stream: u32,
    pool: usize,
    small: bool,
    expandable: bool,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Reference<D> {
    config: Config,
    version: TorchVersion,
    limit: Option<u64>,
    device: D,
    segments: Vec<Segment>,
    pools: Vec<Pool>,
    routes: Vec<(usize, Filter)>,
    handles: Vec<u64>,
    /// Addresses of blocks freed under routing that other streams used.
    deferred: Vec<u64>,
    /// (stream, event, address) in the order of recording.
    events: Vec<(u32, u64, u64)>,
    /// Addresses of blocks whose completion is told from outside.
    told: Vec<u64>,
    reserved: u64,
    counters: Counters,
    history: Vec<Entry>,
    lost: u64,
    /// Segments and blocks made so far.
    made: u64,
    branches: BTreeMap<&'static str, u64>,
}

impl<D: Device> Reference<D> {
    /// An empty allocator; `handles` are the stream handles by index.
    pub fn new(config: Config, version: TorchVersion, handles: Vec<u64>, device: D) -> Self {
        let mut new = Self {
            limit: None,
            counters: Counters::default(),
            version,
            segments: Vec::new(),
            pools: Vec::new(),
            routes: Vec::new(),
            handles,
            deferred: Vec::new(),
            events: Vec::new(),
            told: Vec::new(),
            reserved: 0,
            history: Vec::new(),
            lost: 0,
            made: 0,
            branches: BTreeMap::new(),
            device,
            config,
        };
        new.set_memory_fraction(new.config.per_process_memory_fraction);
        new.create_pool(PoolOptions::default());
        new
    }

    /// Changes the settings in mid-run.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// Limits the bytes that the process may hold.
    pub fn set_limit(&mut self, bytes: Option<u64>) {
        self.limit = bytes;
    }

    /// §4.3: A = trunc(fraction × total); 1.0 removes the limit.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let allowed = (fraction * self.device.total_bytes() as f64).trunc() as u64;
        self.limit = if fraction < 1.0 { Some(allowed) } else { None };
    }

    /// Creates a pool with one user.
    pub fn create_pool(&mut self, options: PoolOptions) -> usize {
        self.pools.push(Pool { options, users: 1, segments: 0, lookups: [0; 2] });
        self.pools.len() - 1
    }

    /// Begins to route; the pool gains a user.
    pub fn begin_route(&mut self, pool: usize, filter: Filter) {
        self.pools[pool].users += 1;
        self.routes.push((pool, filter));
    }

    /// Ends the routing to a pool.
    pub fn end_route(&mut self, pool: usize) {
        let at = self.routes.iter().position(|(p, _)| *p == pool).expect("routing was begun");
        self.routes.remove(at);
    }

    /// One user fewer.
    pub fn release_pool(&mut self, pool: usize) {
        self.pools[pool].users -= 1;
    }

    fn is_routing(&self) -> bool {
        !self.routes.is_empty()
    }

    /// §1.7 and §14: the last begun route that accepts the request, before 2.11 the first.
    fn route(&self, stream: u32, thread: u32) -> usize {
        let mut accepted = Vec::new();
        for (pool, filter) in &self.routes {
            let accepts = match filter {
                Filter::Streams(streams) => streams.contains(&StreamIndex(stream)),
                Filter::Thread(t) => *t == ThreadId(thread),
            };
            if accepts {
                accepted.push(*pool);
            }
        }
        let last_wins = (self.version.major, self.version.minor) >= (2, 11);
        let chosen = if last_wins { accepted.last() } else { accepted.first() };
        chosen.copied().unwrap_or(0)
    }

    /// Everything recorded since the last call.
    pub fn take_history(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.history)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to be told things.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Bytes held (`reserved_total`).
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    /// Times that a private pool's record would have gone although it held memory (§6.7).
    pub fn lost_pools(&self) -> u64 {
        self.lost
    }

    /// The counters, kept as §7.3 says.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters, for resets.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// How often each rare branch was taken.
    pub fn branches(&self) -> &BTreeMap<&'static str, u64> {
        &self.branches
    }

    fn took(&mut self, branch: &'static str) {
        *self.branches.entry(branch).or_default() += 1;
    }

    fn emit(&mut self, action: Action, addr: u64, size: u64, stream: u32) {
        self.history.push(Entry { action, addr, size, stream });
    }

    /// Segment and block number of the block that begins at an address.
    fn find(&self, addr: u64) -> (usize, usize) {
        for (s, segment) in self.segments.iter().enumerate() {
            for (b, block) in segment.blocks.iter().enumerate() {
                if block.addr == addr {
                    return (s, b);
                }
            }
        }
        unreachable!("no block at {addr:#x}")
    }

    fn block(&self, addr: u64) -> &Block {
        let (s, b) = self.find(addr);
        &self.segments[s].blocks[b]
    }

    fn block_mut(&mut self, addr: u64) -> &mut Block {
        let (s, b) = self.find(addr);
        &mut self.segments[s].blocks[b]
    }

    fn segment(&self, addr: u64) -> &Segment {
        &self.segments[self.find(addr).0]
    }

    /// The block behind, in the same segment.
    fn next(&self, addr: u64) -> Option<&Block> {
        let (s, b) = self.find(addr);
        self.segments[s].blocks.get(b + 1)
    }

    fn has_neighbour(&self, addr: u64) -> bool {
        self.segment(addr).blocks.len() > 1
    }

    fn new_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// §2.1: (handle, size, address) of all free mapped blocks of a pool half, by handle and size. Among
    /// equals: up to 2.11 by address, in 2.12 by the age of the block, then by the age of the segment.
    fn free_list(&self, pool: usize, small: bool) -> Vec<(u64, u64, u64)> {
        let mut list = Vec::new();
        for segment in self.segments.iter().filter(|s| s.pool == pool && s.small == small) {
            for block in segment.blocks.iter().filter(|b| b.mapped && b.is_free()) {
                let place = match self.version.minor {
                    ..=11 => (0, block.addr),
                    12 => (0, block.number),
                    13.. => (segment.number, block.addr),
                };
                let handle = self.handles[segment.stream as usize];
                list.push((handle, block.size, place, block.addr));
            }
        }
        list.sort_unstable();
        list.into_iter().map(|(handle, size, _, addr)| (handle, size, addr)).collect()
    }

    /// §3.3: `addr`'s block absorbs prev, then next. Its address afterwards, the number of absorbed
    /// blocks and their bytes.
    fn merge(&mut self, addr: u64) -> (u64, i64, i64) {
        let (s, mut b) = self.find(addr);
        let blocks = &mut self.segments[s].blocks;
        let (mut absorbed, mut bytes) = (0, 0);
        let absorbable = |other: &Block, mapped: bool| other.is_free() && other.mapped == mapped;
        if b > 0 && absorbable(&blocks[b - 1], blocks[b].mapped) {
            let prev = blocks.remove(b - 1);
            b -= 1;
            blocks[b].addr = prev.addr;
            blocks[b].size += prev.size;
            absorbed += 1;
            bytes += signed(prev.size);
        }
        if b + 1 < blocks.len() && absorbable(&blocks[b + 1], blocks[b].mapped) {
            let next = blocks.remove(b + 1);
            blocks[b].size += next.size;
            absorbed += 1;
            bytes += signed(next.size);
        }
        (blocks[b].addr, absorbed, bytes)
    }

    /// The block enters the free set: its stamp is the pool's lookup counter now.
    fn stamp(&mut self, addr: u64) {
        let (s, b) = self.find(addr);
        let Segment { pool, small, .. } = self.segments[s];
        self.segments[s].blocks[b].stamp = self.pools[pool].lookups[usize::from(small)];
    }

    /// §8.5: the segments as a snapshot shows them.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let mut views = Vec::new();
        for segment in &self.segments {
            for run in segment.blocks.chunk_by(|a, b| a.mapped == b.mapped) {
                if !run[0].mapped {
                    continue;
                }
                views.push(SegmentView {
                    addr: run[0].addr,
                    size: run.iter().map(|b| b.size).sum(),
                    stream: StreamIndex(segment.stream),
                    small: segment.small,
                    pool: PoolIndex(u32::try_from(segment.pool).expect("few pools")),
                    expandable: segment.granule.is_some(),
                    blocks: run.iter().map(view).collect(),
                });
            }
        }
        views.sort_by_key(|v| v.addr);
        views
    }
}

fn view(block: &Block) -> BlockView {
    let state = if block.allocated {
        BlockState::ActiveAllocated
    } else if block.is_free() {
        BlockState::Inactive
    } else {
        BlockState::ActivePendingFree
    };
    BlockView { addr: block.addr, size: block.size, requested: block.requested, state }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("below 2^63")
}

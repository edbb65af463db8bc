//! Model and reference side by side: after each operation everything that can be seen must be equal.

use vramwise_model::device::Device;
use vramwise_model::settings::Config;
use vramwise_model::{
    Allocator, BlockId, Entry, Filter, MallocError, PoolIndex, PoolOptions, StreamIndex, ThreadId,
};
use vramwise_types::{Action, TorchVersion};

use super::device::{TestDevice, test_device};
use super::program::Op;
use super::reference::{Counters, Reference};

const MIB: u64 = 1 << 20;

/// Handles of the streams, out of order so that index order and handle order differ.
pub const STREAMS: [u64; 4] = [0, 0x9000, 0x30, 0x7000];

/// Private pools that one run may create.
const MOST_POOLS: usize = 8;

/// What a run starts with.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Start {
    pub config: Config,
    pub version: TorchVersion,
    /// Memory of the card, bytes.
    pub total: u64,
    /// Order of segment addresses, see [`super::device::AnyPlacement::numbered`].
    pub placement: u64,
}

impl Default for Start {
    fn default() -> Self {
        let version = TorchVersion::REFERENCE;
        Self { config: Config::default(), version, total: 1 << 30, placement: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Live {
    id: BlockId,
    addr: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PoolUse {
    users: u32,
    object_gone: bool,
    routed: bool,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Lockstep {
    model: Allocator<TestDevice>,
    reference: Reference<TestDevice>,
    live: Vec<Live>,
    told: Vec<Live>,
    /// Private pools, by index − 1.
    pools: Vec<PoolUse>,
    routes: Vec<u32>,
    entries: Vec<Entry>,
    was_reset: bool,
}

impl Lockstep {
    /// Both allocators with an empty cache.
    pub fn new(start: Start) -> Self {
        let Start { config, version, total, placement } = start;
        let device = || test_device(total, placement);
        let mut model = Allocator::new(config.clone(), version, device());
        for handle in STREAMS {
            model.stream(handle);
        }
        Self {
            model,
            reference: Reference::new(config, version, STREAMS.to_vec(), device()),
            live: Vec::new(),
            told: Vec::new(),
            pools: Vec::new(),
            routes: Vec::new(),
            entries: Vec::new(),
            was_reset: false,
        }
    }

    /// The model.
    pub fn model(&self) -> &Allocator<TestDevice> {
        &self.model
    }

    /// The reference.
    pub fn reference(&self) -> &Reference<TestDevice> {
        &self.reference
    }

    /// Number of blocks that the program holds.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// What the last operation wrote into the history.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Does one operation in both and compares what came of it; `thoroughly` also compares the
    /// segments and checks every invariant.
    ///
    /// # Errors
    /// What differs or does not hold.
    pub fn step(&mut self, op: &Op, thoroughly: bool) -> Result<(), String> {
        self.entries.clear();
        self.perform(op)?;
        self.compare_history()?;
        self.compare_numbers()?;
        if thoroughly {
            self.compare_state()?;
        }
        let completed = self.entries.iter().filter(|e| e.action == Action::FreeCompleted);
        for entry in completed {
            self.told.retain(|t| t.addr != entry.addr);
        }
        Ok(())
    }

    fn perform(&mut self, op: &Op) -> Result<(), String> {
        let history = &mut self.entries;
        match *op {
            Op::Malloc { size, stream, thread } => return self.malloc(size, stream, thread),
            Op::Free { .. } | Op::FreeNewest => {
                let newest = self.live.len().checked_sub(1);
                let picked = if let Op::Free { pick } = *op {
                    modulo(pick, self.live.len())
                } else {
                    newest
                };
                if let Some(at) = picked {
                    let block = self.live.remove(at);
                    self.model.free(block.id, history);
                    self.reference.free(block.addr);
                }
            }
            Op::FreePending { pick } => {
                if let Some(at) = modulo(pick, self.live.len()) {
                    let block = self.live.swap_remove(at);
                    self.model.free_pending(block.id, history);
                    self.reference.free_pending(block.addr);
                    self.told.push(block);
                }
            }
            Op::Complete { pick } => {
                if let Some(at) = modulo(pick, self.told.len()) {
                    let block = self.told.swap_remove(at);
                    let done = self.model.complete(block.id, history);
                    same(
                        "whether a free was pending",
                        &done,
                        &self.reference.complete(block.addr),
                    )?;
                }
            }
            Op::RecordStream { pick, stream } => {
                if let Some(at) = modulo(pick, self.live.len()) {
                    let (block, stream) = (self.live[at], stream_index(stream));
                    self.model.record_stream(block.id, stream);
                    self.reference.record_stream(block.addr, stream.0);
                }
            }
            Op::PassEvents { stream, count } => {
                let handle = STREAMS[stream_index(stream).0 as usize];
                self.model.device_mut().pass_events(handle, count.into());
                self.reference.device_mut().pass_events(handle, count.into());
            }
            Op::ProcessEvents => {
                // PyTorch asks for events only where no routing is under way.
                if self.routes.is_empty() {
                    self.model.process_events(history);
                    self.reference.process_events();
                }
            }
            Op::EmptyCache => {
                self.model.empty_cache(history);
                self.reference.empty_cache();
            }
            Op::SetLimit { mib } => {
                let bytes = mib.map(|m| u64::from(m) * MIB);
                self.model.set_limit(bytes);
                self.reference.set_limit(bytes);
            }
            Op::SetFraction { hundredths } => {
                let fraction = f64::from(hundredths % 101) / 100.0;
                self.model.set_memory_fraction(fraction);
                self.reference.set_memory_fraction(fraction);
            }
            Op::SetConfig(ref config) => {
                self.model.set_config(Config::clone(config));
                self.reference.set_config(Config::clone(config));
            }
            Op::ResetPeak => {
                self.model.stats_mut().reset_peak();
                self.reference.counters_mut().reset_peak();
            }
            Op::ResetAccumulated => {
                self.was_reset = true;
                self.model.stats_mut().reset_accumulated();
                self.reference.counters_mut().reset_accumulated();
            }
            ref op => self.perform_on_pools(op),
        }
        Ok(())
    }

    fn malloc(&mut self, size: u64, stream: u8, thread: u8) -> Result<(), String> {
        let (stream, thread) = (stream_index(stream), ThreadId(u32::from(thread % 2)));
        let got = self.model.malloc(size, stream, thread, &mut self.entries);
        let want = self.reference.malloc(size, stream.0, thread.0);
        let got_addr: Result<u64, MallocError> = got.map(|id| self.model.address(id));
        same("result of malloc", &got_addr, &want)?;
        if let Ok(id) = got
            && id != BlockId::NULL
        {
            self.live.push(Live { id, addr: self.model.address(id) });
        }
        Ok(())
    }

    fn perform_on_pools(&mut self, op: &Op) {
        match *op {
            Op::CreatePool(options) => self.create_pool(options),
            Op::BeginRoute { pool, thread, capture } => {
                let Some(at) = modulo(pool.into(), self.pools.len()) else { return };
                // PyTorch refuses to begin twice; a pool without users is gone for the program.
                let pool = &mut self.pools[at];
                if pool.routed || pool.users == 0 {
                    return;
                }
                (pool.routed, pool.users) = (true, pool.users + 1);
                let filter = if capture {
                    Filter::Streams(vec![
                        stream_index(thread),
                        stream_index(thread.wrapping_add(1)),
                    ])
                } else {
                    Filter::Thread(ThreadId(u32::from(thread % 2)))
                };
                let index = pool_index(at);
                self.routes.push(index.0);
                self.model.begin_route(index, filter.clone());
                self.reference.begin_route(at + 1, filter);
            }
            Op::EndRoute { pick } => {
                let Some(at) = modulo(pick.into(), self.routes.len()) else { return };
                let pool = self.routes.remove(at);
                self.model.end_route(PoolIndex(pool));
                self.reference.end_route(pool as usize);
                self.pools[pool as usize - 1].routed = false;
                self.release(pool as usize - 1);
            }
            Op::ReleasePool { pool } | Op::DestroyPool { pool } => {
                let Some(at) = modulo(pool.into(), self.pools.len()) else { return };
                if std::mem::replace(&mut self.pools[at].object_gone, true) {
                    return;
                }
                if matches!(op, Op::ReleasePool { .. }) {
                    return self.release(at);
                }
                self.pools[at].users -= 1;
                self.model.destroy_pool(pool_index(at), &mut self.entries);
                self.reference.destroy_pool(at + 1);
            }
            _ => {}
        }
    }

    fn create_pool(&mut self, options: PoolOptions) {
        if self.pools.len() < MOST_POOLS {
            self.pools.push(PoolUse { users: 1, ..PoolUse::default() });
            self.model.create_pool(options);
            self.reference.create_pool(options);
        }
    }

    fn release(&mut self, at: usize) {
        self.pools[at].users -= 1;
        self.model.release_pool(pool_index(at));
        self.reference.release_pool(at + 1);
    }

    fn compare_history(&mut self) -> Result<(), String> {
        same("history", &self.entries, &self.reference.take_history())
    }

    fn compare_numbers(&self) -> Result<(), String> {
        let stats = self.model.stats();
        let counters = Counters::of_model(stats);
        same("counters", &counters, self.reference.counters())?;
        same("reserved", &self.model.reserved_bytes(), &self.reference.reserved_bytes())?;
        same("lost pools", &self.model.lost_pools(), &self.reference.lost_pools())?;
        let device = self.model.device();
        same("device calls", &device.counts(), &self.reference.device().counts())?;
        same("bytes held from the device", &device.held_bytes(), &self.model.reserved_bytes())?;
        same("free bytes", &device.free_bytes(), &self.reference.device().free_bytes())?;
        match device.fault() {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(()),
        }
    }

    fn compare_state(&self) -> Result<(), String> {
        self.model.check().map_err(|broken| broken.to_string())?;
        same("segments", &self.model.segments(), &self.reference.snapshot())?;
        let counters = self.reference.counters();
        same("current values", &counters.current(), &self.reference.sums())?;
        for quadruple in counters.families.iter().flatten() {
            let [current, peak, allocated, freed] = quadruple.0;
            if peak < current || (!self.was_reset && allocated - freed != current) {
                return Err(format!("{quadruple:?} is no (current, peak, allocated, freed)"));
            }
        }
        Ok(())
    }

    /// Lets everything go as a program does that ends tidily, and demands that nothing stays.
    ///
    /// # Errors
    /// What differs, does not hold or stays.
    pub fn wind_down(&mut self) -> Result<(), String> {
        while !self.routes.is_empty() {
            self.step(&Op::EndRoute { pick: 0 }, true)?;
        }
        for pool in 0..self.pools.len() {
            self.step(&Op::DestroyPool { pool: u8::try_from(pool).unwrap_or(0) }, true)?;
        }
        while !self.live.is_empty() {
            self.step(&Op::Free { pick: 0 }, true)?;
        }
        self.step(&Op::EmptyCache, true)?;
        // Granules that a leftover kept are whole once everything is free.
        same("bytes that stay", &self.model.reserved_bytes(), &0)?;
        same("current values that stay", &self.reference.counters().current(), &[[0; 3]; 9])?;
        same("segments that stay", &self.model.segments().len(), &0)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}: the model says\n  {got:#?}\nthe reference\n  {want:#?}"))
}

fn modulo(number: u32, len: usize) -> Option<usize> {
    (number as usize).checked_rem(len)
}

fn stream_index(number: u8) -> StreamIndex {
    StreamIndex(u32::from(number) % STREAMS.len() as u32)
}

fn pool_index(at: usize) -> PoolIndex {
    PoolIndex(u32::try_from(at + 1).expect("few pools"))
}

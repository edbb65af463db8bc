//! A stage for the worked examples: an allocator on a simulated device whose addresses have names.
//!
//! Ordinary segments are S0, S1, … in the order of creation, the reservations of expandable segments E
//! (small pool) and L, L′ (large pool). Everything is shown as the specification writes it: blocks as
//! `offset/size`, free ones marked, multiples of 1 MiB as `3M`. Counters are (current, peak,
//! allocated, freed).

use vramwise_model::device::{RisingPlacement, SimDevice};
use vramwise_model::settings;
use vramwise_model::stats::{Family, Stat};
use vramwise_model::{
    Allocator, BlockId, BlockState, Entry, MallocError, SegmentView, StreamIndex, ThreadId,
};
use vramwise_testkit::allocator::device::{Call, Watched};
use vramwise_types::{Action, TorchVersion};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) type TestDevice = Watched<SimDevice<RisingPlacement>>;

#[derive(Clone)]
struct Region {
    name: String,
    base: u64,
    size: u64,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) allocator: Allocator<TestDevice>,
    pub(crate) thread: ThreadId,
    history: Vec<Entry>,
    regions: Vec<Region>,
    calls: Vec<String>,
    last_request: u64,
}

/// A card of 1 GiB under a settings string.
pub(crate) fn world(conf: &str) -> World {
    World::new(conf, GIB, TorchVersion::REFERENCE)
}

impl World {
    pub(crate) fn new(conf: &str, total: u64, version: TorchVersion) -> Self {
        let config = settings::parse(conf, version).expect("a string that PyTorch accepts").config;
        let device = Watched::new(SimDevice::new(total, RisingPlacement::default()));
        Self {
            allocator: Allocator::new(config, version, device.listing_calls()),
            thread: ThreadId(0),
            history: Vec::new(),
            regions: Vec::new(),
            calls: Vec::new(),
            last_request: 0,
        }
    }

    /// Does something with the allocator and checks every invariant afterwards.
    pub(crate) fn act<R>(
        &mut self,
        action: impl FnOnce(&mut Allocator<TestDevice>, &mut Vec<Entry>) -> R,
    ) -> R {
        let result = action(&mut self.allocator, &mut self.history);
        for call in self.allocator.device_mut().take_calls() {
            self.learn(call);
            let shown = self.show_call(call);
            self.calls.push(shown);
        }
        self.allocator.check().expect("invariants hold");
        assert_eq!(self.allocator.device().fault(), None);
        let held = self.allocator.device().held_bytes();
        assert_eq!(self.allocator.reserved_bytes(), held);
        result
    }

    pub(crate) fn try_alloc_on(
        &mut self,
        stream: StreamIndex,
        bytes: u64,
    ) -> Result<BlockId, MallocError> {
        let thread = self.thread;
        self.last_request = bytes;
        self.act(|a, history| a.malloc(bytes, stream, thread, history))
    }

    pub(crate) fn try_alloc(&mut self, bytes: u64) -> Result<BlockId, MallocError> {
        self.try_alloc_on(StreamIndex::DEFAULT, bytes)
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> BlockId {
        self.try_alloc(bytes).expect("there is memory")
    }

    pub(crate) fn alloc_on(&mut self, stream: StreamIndex, bytes: u64) -> BlockId {
        self.try_alloc_on(stream, bytes).expect("there is memory")
    }

    pub(crate) fn free(&mut self, block: BlockId) {
        self.act(|a, history| a.free(block, history));
    }

    /// Allocates and gives back at once.
    pub(crate) fn touch(&mut self, bytes: u64) {
        let block = self.alloc(bytes);
        self.free(block);
    }

    pub(crate) fn empty_cache(&mut self) {
        self.act(Allocator::empty_cache);
    }

    pub(crate) fn process_events(&mut self) {
        self.act(Allocator::process_events);
    }

    pub(crate) fn set_conf(&mut self, conf: &str) {
        let now = self.allocator.config().clone();
        let parsed = settings::parse_onto(&now, conf, TorchVersion::REFERENCE);
        self.allocator.set_config(parsed.expect("a string that PyTorch accepts").config);
    }

    /// (current, peak, allocated, freed) over all pools.
    pub(crate) fn all(&self, family: Family) -> (i64, i64, i64, i64) {
        quadruple(self.allocator.stats().all(family))
    }

    pub(crate) fn current(&self, family: Family) -> i64 {
        self.allocator.stats().all(family).current
    }

    pub(crate) fn small(&self, family: Family) -> (i64, i64, i64, i64) {
        quadruple(self.allocator.stats().pool(family, true))
    }

    pub(crate) fn large(&self, family: Family) -> (i64, i64, i64, i64) {
        quadruple(self.allocator.stats().pool(family, false))
    }

    /// `[num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free]`.
    pub(crate) fn numbers(&self) -> [i64; 5] {
        let s = self.allocator.stats();
        [
            s.num_alloc_retries,
            s.num_ooms,
            s.num_sync_all_streams,
            s.num_device_alloc,
            s.num_device_free,
        ]
    }

    /// Where a block lies, as `S0+512`, and its size.
    pub(crate) fn place(&self, block: BlockId) -> String {
        let size = self.allocator.block_size(block);
        format!("{}/{}", self.name(self.allocator.address(block)), bytes(size))
    }

    /// The segment or mapped run that begins at a named place, as a snapshot shows it.
    pub(crate) fn segment(&self, name: &str) -> SegmentView {
        let segments = self.allocator.segments();
        let found = segments.iter().find(|s| self.name(s.addr) == format!("{name}+0"));
        let found = found.or_else(|| segments.iter().find(|s| self.name(s.addr) == name));
        found.unwrap_or_else(|| panic!("no segment {name}")).clone()
    }

    /// The blocks of a region in address order, unmapped parts left out.
    pub(crate) fn layout(&self, name: &str) -> String {
        let region = self.regions.iter().find(|r| r.name == name).expect("a known name");
        let inside = |addr: u64| addr >= region.base && addr < region.base + region.size;
        let segments = self.allocator.segments();
        let blocks = segments.iter().filter(|s| inside(s.addr)).flat_map(|s| &s.blocks);
        let shown = blocks.map(|b| {
            let mark = match b.state {
                BlockState::ActiveAllocated => "",
                BlockState::ActivePendingFree => "pending ",
                BlockState::Inactive => "free ",
            };
            format!("{mark}{}/{}", bytes(b.addr - region.base), bytes(b.size))
        });
        shown.collect::<Vec<_>>().join(" · ")
    }

    /// Names of the segments in a snapshot, ascending by address.
    pub(crate) fn segments(&self) -> Vec<String> {
        let named = |s: &SegmentView| self.name(s.addr).trim_end_matches("+0").to_owned();
        self.allocator.segments().iter().map(named).collect()
    }

    /// History entries since the last look.
    pub(crate) fn entries(&mut self) -> Vec<String> {
        let entries = std::mem::take(&mut self.history);
        entries.iter().map(|e| self.show_entry(e)).collect()
    }

    /// Calls of the device since the last look.
    pub(crate) fn device_calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    fn learn(&mut self, call: Call) {
        let (name, base, size) = match call {
            Call::Malloc { size, addr: Some(base) } => {
                let ordinary = self.regions.iter().filter(|r| r.name.starts_with('S')).count();
                (format!("S{ordinary}"), base, size)
            }
            Call::Reserve { size, addr: Some(base) } => {
                let small = self.last_request <= MIB;
                let before = self.regions.iter().filter(|r| r.name.starts_with('L')).count();
                let large = format!("L{}", "′".repeat(before));
                (if small { "E".to_owned() } else { large }, base, size)
            }
            _ => return,
        };
        self.regions.push(Region { name, base, size });
    }

    fn name(&self, addr: u64) -> String {
        let found = self.regions.iter().rev().find(|r| addr >= r.base && addr < r.base + r.size);
        let region = found.unwrap_or_else(|| panic!("{addr:#x} lies in no known region"));
        format!("{}+{}", region.name, bytes(addr - region.base))
    }

    fn show_entry(&self, entry: &Entry) -> String {
        let Entry { action, addr, size, stream } = *entry;
        let shown = match action {
            Action::Oom => format!("oom {}, device_free {}", bytes(size), bytes(addr)),
            Action::SegmentAlloc | Action::SegmentFree => {
                let name = self.name(addr);
                format!("{action} {} {}", name.trim_end_matches("+0"), bytes(size))
            }
            _ => format!("{action} {} {}", self.name(addr), bytes(size)),
        };
        if stream == 0 { shown } else { format!("{shown} on {stream}") }
    }

    fn show_call(&self, call: Call) -> String {
        let refused = |done: bool| if done { "" } else { " refused" };
        match call {
            Call::Malloc { size, addr } => {
                format!("malloc {}{}", bytes(size), refused(addr.is_some()))
            }
            Call::Free { addr, .. } => format!("free {}", self.name(addr).trim_end_matches("+0")),
            Call::Reserve { size, .. } => format!("reserve {}", bytes(size)),
            Call::ReleaseReservation { addr, .. } => {
                format!("drop {}", self.name(addr).trim_end_matches("+0"))
            }
            Call::Map { addr, size, done } => {
                format!("map {} {}{}", self.name(addr), bytes(size), refused(done))
            }
            Call::Unmap { addr, size } => format!("unmap {} {}", self.name(addr), bytes(size)),
        }
    }
}

pub(crate) fn quadruple(stat: Stat) -> (i64, i64, i64, i64) {
    (stat.current, stat.peak, stat.allocated, stat.freed)
}

/// Multiples of 1 MiB as `3M`, all else as it is.
fn bytes(n: u64) -> String {
    if n > 0 && n.is_multiple_of(MIB) { format!("{}M", n / MIB) } else { n.to_string() }
}

//! A program that allocates as the training of a transformer does, run on the allocator's model.
//!
//! Parameters and optimizer states stay; every step takes activations forward and gives them back
//! backward, with temporaries in between, and its sequence length changes from step to step. Inputs
//! come from a second stream. So the history has what real ones have: reuse, splits, growth in the
//! first steps, pending frees.

use std::collections::BTreeMap;

use vramwise_model::device::{DriverPlacement, SimDevice};
use vramwise_model::settings::Config;
use vramwise_model::{Allocator, BlockId, Entry, Recorder, SegmentView, StreamIndex, ThreadId};
use vramwise_types::{GIB, TorchVersion};

use crate::Rng;

/// Layers of the model.
const LAYERS: u64 = 24;
/// Width of the model.
const WIDTH: u64 = 1024;
/// Handle of the stream that inputs come from.
const COPY_STREAM: u64 = 0x5581_2af0_41c0;

/// A place in the program that allocates or frees; [`crate::snapshot`] makes a stack of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site(pub u32);

/// What the allocator did in a run, and how it ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The history from an empty cache.
    pub entries: Vec<Entry>,
    /// Which place of the program caused each entry.
    pub sites: Vec<Site>,
    /// The segments at the end.
    pub segments: Vec<SegmentView>,
    /// Which place of the program allocated the blocks in use at the end, by address.
    pub live_sites: BTreeMap<u64, Site>,
    /// Handles of the streams by index.
    pub streams: Vec<u64>,
    /// Highest sum of requested bytes in use.
    pub peak_requested: u64,
    /// Highest sum of segments.
    pub peak_reserved: u64,
}

/// Trains until the history has `events` entries (or one or two more).
pub fn run(seed: u64, events: usize) -> Run {
    let mut program = Program::new(seed, events);
    program.start();
    while !program.done() {
        program.step();
    }
    program.finish()
}

/// The history with its places.
#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    sites: Vec<Site>,
    site: Site,
}

impl Recorder for Log {
    fn record(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.sites.push(self.site);
    }
}

/// A tensor in use.
#[derive(Clone, Copy)]
struct Tensor {
    block: BlockId,
    site: Site,
}

struct Program {
    allocator: Allocator<SimDevice<DriverPlacement>>,
    copy_stream: StreamIndex,
    log: Log,
    rng: Rng,
    wanted: usize,
    live: BTreeMap<u64, Site>,
    /// Gradients appear in the first step and stay.
    has_gradients: bool,
}

impl Program {
    fn new(seed: u64, wanted: usize) -> Self {
        let mut device = SimDevice::new(140 * GIB, DriverPlacement::default());
        device.hold_events();
        let mut allocator = Allocator::new(Config::default(), TorchVersion::REFERENCE, device);
        let copy_stream = allocator.stream(COPY_STREAM);
        Self {
            allocator,
            copy_stream,
            log: Log::default(),
            rng: Rng::new(seed),
            wanted,
            live: BTreeMap::new(),
            has_gradients: false,
        }
    }

    fn done(&self) -> bool {
        self.log.entries.len() >= self.wanted
    }

    fn take_on(&mut self, stream: StreamIndex, bytes: u64, site: u32) -> Option<Tensor> {
        if self.done() {
            return None;
        }
        let site = Site(site);
        self.log.site = site;
        let block = self.allocator.malloc(bytes, stream, ThreadId(0), &mut self.log).ok()?;
        self.live.insert(self.allocator.address(block), site);
        Some(Tensor { block, site })
    }

    fn take(&mut self, bytes: u64, site: u32) -> Option<Tensor> {
        self.take_on(StreamIndex::DEFAULT, bytes, site)
    }

    fn give(&mut self, tensor: Option<Tensor>) {
        let Some(tensor) = tensor.filter(|_| !self.done()) else { return };
        // Frees have stacks of their own: those of the place behind the allocation.
        self.log.site = Site(tensor.site.0 + 1);
        self.live.remove(&self.allocator.address(tensor.block));
        self.allocator.free(tensor.block, &mut self.log);
    }

    /// Parameters, and two states of the optimizer for each.
    fn start(&mut self) {
        for copy in 0..3 {
            for layer in 0..LAYERS {
                for (i, elements) in PARAMETERS.iter().enumerate() {
                    let _kept = self.take(4 * elements, site(layer, i as u64 + 100 * (copy + 1)));
                }
            }
        }
    }

    fn step(&mut self) {
        let rows = 8 * self.rng.range(64..513);
        let input = self.take_on(self.copy_stream, 8 * rows, 1);
        if let Some(input) = input {
            self.allocator.record_stream(input.block, StreamIndex::DEFAULT);
        }
        let mut saved: Vec<Vec<Option<Tensor>>> = Vec::new();
        for layer in 0..LAYERS {
            saved.push(self.forward(layer, rows));
        }
        self.allocator.device_mut().complete_events();
        let loss = self.take(4, 3);
        for layer in (0..LAYERS).rev() {
            let activations = saved.pop().unwrap_or_default();
            self.backward(layer, rows, activations);
        }
        self.has_gradients = true;
        self.give(loss);
        self.give(input);
        self.optimize();
    }

    fn forward(&mut self, layer: u64, rows: u64) -> Vec<Option<Tensor>> {
        let mut saved = Vec::new();
        for (i, width) in ACTIVATIONS.iter().enumerate() {
            let bytes = 2 * rows * width;
            let workspace = self.take(bytes / 2 + 4096, site(layer, 2 * i as u64));
            saved.push(self.take(bytes, site(layer, 20 + 2 * i as u64)));
            self.give(workspace);
            if self.rng.one_in(3) {
                let mask = self.take(rows.div_ceil(8), site(layer, 40));
                self.give(mask);
            }
        }
        saved
    }

    fn backward(&mut self, layer: u64, rows: u64, mut saved: Vec<Option<Tensor>>) {
        let mut flowing = self.take(2 * rows * WIDTH, site(layer, 50));
        while let Some(activation) = saved.pop() {
            let next = self.take(2 * rows * WIDTH, site(layer, 52 + 2 * saved.len() as u64));
            self.give(flowing);
            self.give(activation);
            flowing = next;
        }
        self.give(flowing);
        for (i, elements) in PARAMETERS.iter().enumerate() {
            let gradient = self.take(4 * elements, site(layer, 70 + 2 * i as u64));
            if self.has_gradients {
                // Added to the one that stays.
                self.give(gradient);
            }
        }
    }

    /// One temporary for each parameter, as an optimizer without fused kernels has.
    fn optimize(&mut self) {
        for layer in 0..LAYERS {
            for (i, elements) in PARAMETERS.iter().enumerate() {
                let update = self.take(4 * elements, site(layer, 90 + 2 * i as u64));
                self.give(update);
            }
        }
    }

    fn finish(self) -> Run {
        let stats = self.allocator.stats();
        let peak = |family| u64::try_from(stats.all(family).peak).unwrap_or(0);
        use vramwise_model::stats::Family;
        Run {
            peak_requested: peak(Family::RequestedBytes),
            peak_reserved: peak(Family::ReservedBytes),
            segments: self.allocator.segments(),
            streams: vec![0, COPY_STREAM],
            entries: self.log.entries,
            sites: self.log.sites,
            live_sites: self.live,
        }
    }
}

/// Elements of a layer's parameters.
const PARAMETERS: [u64; 6] =
    [3 * WIDTH * WIDTH, 3 * WIDTH, WIDTH * WIDTH, 4 * WIDTH * WIDTH, 4 * WIDTH, WIDTH];

/// Columns of a layer's saved activations.
const ACTIVATIONS: [u64; 8] = [WIDTH, 3 * WIDTH, WIDTH, 16, WIDTH, 4 * WIDTH, 4 * WIDTH, WIDTH];

/// The place numbered `place` in a layer's code.
fn site(layer: u64, place: u64) -> u32 {
    (8 + layer * 512 + place) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramwise_types::Action;

    #[test]
    fn a_run_has_what_real_histories_have_and_repeats_exactly() {
        let first = run(3, 20_000);
        assert!((20_000..20_003).contains(&first.entries.len()));
        assert_eq!(first.entries.len(), first.sites.len());
        let count = |action| first.entries.iter().filter(|e| e.action == action).count();
        assert!(count(Action::Alloc) > 6_000);
        assert!(count(Action::SegmentAlloc) > 20);
        let delayed = first.entries.windows(2).any(|pair| {
            pair[0].action == Action::FreeRequested && pair[1].action != Action::FreeCompleted
        });
        assert!(delayed, "some frees wait for another stream");
        assert_eq!(first.entries, run(3, 20_000).entries);
        assert_ne!(first.entries, run(4, 20_000).entries);
    }

    #[test]
    fn the_blocks_in_use_at_the_end_are_those_not_freed() {
        let run = run(5, 30_000);
        let blocks = run.segments.iter().flat_map(|s| &s.blocks);
        let allocated: Vec<u64> = blocks
            .filter(|b| b.state == vramwise_model::BlockState::ActiveAllocated)
            .map(|b| b.addr)
            .collect();
        let live: Vec<u64> = run.live_sites.keys().copied().collect();
        assert_eq!(allocated, live);
        assert!(run.peak_requested <= run.peak_reserved && run.peak_requested > GIB);
    }
}

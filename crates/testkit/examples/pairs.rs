//! Speed of the model in malloc+free pairs a second: `pairs [--pairs N]`.
//!
//! (a) one block of 4 MiB handed out and given back again and again; (b) 1,000 live blocks of mixed
//! sizes, of which a random one is replaced; (c) as (b), but 20,000 blocks. Each with the history off.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use vramwise_model::device::{DriverPlacement, SimDevice};
use vramwise_model::settings::Config;
use vramwise_model::{Allocator, BlockId, NoHistory, StreamIndex, ThreadId};
use vramwise_testkit::Rng;
use vramwise_types::{GIB, MIB, TorchVersion};

type Model = Allocator<SimDevice<DriverPlacement>>;

fn model(expandable: bool) -> Model {
    let config = Config { expandable_segments: expandable, ..Config::default() };
    let device = SimDevice::new(4096 * GIB, DriverPlacement::default());
    Allocator::new(config, TorchVersion::REFERENCE, device)
}

fn malloc(model: &mut Model, bytes: u64) -> BlockId {
    model
        .malloc(bytes, StreamIndex::DEFAULT, ThreadId(0), &mut NoHistory)
        .expect("4 TiB hold everything here")
}

fn fixed(model: &mut Model, pairs: usize) {
    for _ in 0..pairs {
        let block = malloc(model, 4 * MIB);
        model.free(block, &mut NoHistory);
    }
}

/// Sizes as programs have them: many small, some large, few huge.
fn size(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..5 => rng.octaves(256, MIB),
        5..9 => rng.octaves(MIB, 64 * MIB),
        _ => rng.octaves(64 * MIB, 512 * MIB),
    }
}

fn mixed(model: &mut Model, pairs: usize, live: usize) {
    let mut rng = Rng::new(1);
    let mut blocks: Vec<BlockId> = (0..live).map(|_| malloc(model, size(&mut rng))).collect();
    for _ in 0..pairs.saturating_sub(live) {
        let at = rng.index(live);
        model.free(blocks[at], &mut NoHistory);
        blocks[at] = malloc(model, size(&mut rng));
    }
    for block in blocks {
        model.free(block, &mut NoHistory);
    }
}

/// Seconds that this thread ran, so that a busy machine does not count; only Linux tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let pairs = match (args.next().as_deref(), args.next().and_then(|n| n.parse().ok())) {
        (None, _) => 2_000_000,
        (Some("--pairs"), Some(pairs)) => pairs,
        _ => return ExitCode::from(2),
    };
    let mut out = std::io::stdout().lock();
    for expandable in [false, true] {
        for live in [1usize, 1_000, 20_000] {
            let mut model = model(expandable);
            let start = Instant::now();
            let cpu = cpu_seconds();
            if live == 1 {
                fixed(&mut model, pairs);
            } else {
                mixed(&mut model, pairs, live);
            }
            let wall = start.elapsed().as_secs_f64();
            let seconds = cpu_seconds().zip(cpu).map_or(wall, |(after, before)| after - before);
            #[allow(clippy::cast_precision_loss)]
            let rate = pairs as f64 / seconds / 1e6;
            let kind = if expandable { "expandable" } else { "default" };
            let _ = writeln!(out, "{kind:>10}  {live:>6} live  {rate:6.2} million pairs/s");
        }
    }
    ExitCode::SUCCESS
}

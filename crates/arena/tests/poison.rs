//! Random programs on a device whose streams run late, in any order that its events allow.
//!
//! Each block is filled by its stream when it is handed out and read again before it is freed; blocks used on other
//! streams are read there too. The device runs that work at random moments. If memory ever serves two blocks at a
//! time, or is unmapped while work on it is queued, a read finds what it must not find. Calls of the device fail at
//! random in half of the programs.

mod late;

use std::collections::BTreeMap;

use late::{LateDevice, Random};
use proptest::prelude::*;
use vramwise_arena::{AllocError, Device, Heap, Params, PoolId};

const STREAMS: u64 = 4;

struct Program {
    heap: Heap<LateDevice>,
    random: Random,
    live: BTreeMap<u64, (u64, u64, u64)>,
    next: u64,
    capturing: bool,
}

impl Program {
    fn new(seed: u64, total: u64, faults: bool) -> Self {
        let mut device = LateDevice::new(total, seed);
        device.faults = faults;
        // Small programs: large handles must appear in them as well.
        let params = Params {
            handle_share: 8,
            request_share: 1 << (seed % 8),
            fine_share: 8 << (seed % 7),
            varied: 0.1 * (seed % 5) as f64,
            aligned: [0.0, 0.02, 1.0][(seed % 3) as usize],
            ..Params::default()
        };
        Self {
            heap: Heap::new(device, params),
            random: Random(seed | 1),
            live: BTreeMap::new(),
            next: 1,
            capturing: false,
        }
    }

    fn alloc(&mut self) {
        let size = match self.random.below(10) {
            0..4 => 1 + self.random.below(300 << 10),
            4..8 => 1 + self.random.below(8 << 20),
            _ => 1 + self.random.below(96 << 20),
        };
        let stream = self.random.below(STREAMS);
        let pool = if self.capturing && self.random.below(2) == 0 {
            PoolId(0, 1)
        } else {
            PoolId::DEFAULT
        };
        let stream = if pool == PoolId::DEFAULT { stream } else { late::CAPTURED };
        match self.heap.alloc(stream, size, pool) {
            Ok(block) => {
                assert!(block.size >= size && block.address.is_multiple_of(512));
                let before = self.live.range(..block.address + block.size).next_back();
                let apart =
                    before.is_none_or(|(address, (bytes, ..))| address + bytes <= block.address);
                assert!(apart, "two blocks at {:#x}", block.address);
                self.heap.device_mut().write(stream, block.address, block.size, self.next);
                self.live.insert(block.address, (block.size, stream, self.next));
                self.next += 1;
            }
            Err(AllocError::OutOfMemory | AllocError::OutOfAddresses | AllocError::Driver(_)) => {}
            Err(AllocError::UnknownPool) => panic!("the pool was made"),
        }
    }

    fn free(&mut self) {
        let Some(at) = self.random.below(self.live.len() as u64 + 1).checked_sub(1) else { return };
        let Some((address, (size, stream, tag))) =
            self.live.iter().nth(at as usize).map(|(a, b)| (*a, *b))
        else {
            return;
        };
        if self.random.below(4) == 0 && stream != late::CAPTURED {
            let other = self.random.below(STREAMS);
            // What uses a block on another stream waits for its contents first, as programs do.
            self.heap.device_mut().order(stream, other);
            self.heap.device_mut().read(other, address, size, tag);
            assert!(self.heap.record_stream(address, other));
        }
        self.heap.device_mut().read(stream, address, size, tag);
        self.live.remove(&address);
        assert!(self.heap.free(address).is_some());
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..48 => self.alloc(),
            48..92 => self.free(),
            92..95 => self.heap.device_mut().run_some(),
            95 => {
                let _ = self.heap.empty_cache(PoolId::DEFAULT);
            }
            96 => {
                let limit = (self.random.below(3) == 0).then_some(200 << 20);
                let params = Params { limit, ..*self.heap.params() };
                self.heap.set_params(params);
            }
            97 if !self.capturing => {
                self.capturing = true;
                let _ = self.heap.pool_retain(PoolId(0, 1));
                self.heap.capture_begin();
                self.heap.device_mut().capturing = true;
            }
            98 if self.capturing => {
                self.capturing = false;
                self.heap.device_mut().capturing = false;
                self.heap.capture_end();
                let _ = self.heap.pool_release(PoolId(0, 1));
            }
            _ => {
                assert!(self.heap.free(0x1234).is_none());
            }
        }
    }

    /// What is called free for any request makes one block, with what the device has free.
    fn have_all_that_moves(&mut self) {
        self.heap.device_mut().faults = false;
        let (movable, page) = (self.heap.movable(), 2 << 20);
        let kept = self.heap.held_bytes() - movable;
        let total = self.heap.device().total();
        let limit = self.heap.params().limit.unwrap_or(total).min(total).saturating_sub(kept);
        let most = (movable + self.heap.device().free()).min(limit) / page * page;
        if most > 0 && !self.capturing {
            let stream = self.random.below(STREAMS);
            let block =
                self.heap.alloc(stream, most, PoolId::DEFAULT).expect("it was said to be free");
            assert!(self.heap.free(block.address).is_some());
        }
    }

    fn finish(mut self) {
        self.have_all_that_moves();
        while !self.live.is_empty() {
            self.free();
        }
        if self.capturing {
            self.heap.device_mut().capturing = false;
            self.heap.capture_end();
            let _ = self.heap.pool_release(PoolId(0, 1));
        }
        self.heap.device_mut().faults = false;
        self.heap.device_mut().run_all();
        self.heap.empty_cache(PoolId::DEFAULT).expect("the default pool exists");
        self.heap.check().expect("sound at the end");
        assert_eq!(self.heap.held_bytes(), 0, "memory is still held");
        assert_eq!(self.heap.counters().allocation[0].current, 0);
        assert_eq!(self.heap.counters().active_bytes[0].current, 0);
        assert_eq!(self.heap.device().used(), 0);
    }
}

fn run(seed: u64, steps: u32, total: u64, faults: bool) {
    let mut program = Program::new(seed, total, faults);
    for step in 0..steps {
        program.step();
        if step % 16 == 0 {
            program.heap.check().unwrap_or_else(|v| panic!("seed {seed}, step {step}: {v}"));
        }
    }
    program.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn memory_never_serves_two_blocks(seed in any::<u64>(), faults in any::<bool>(), tight in any::<bool>()) {
        run(seed, 700, if tight { 384 << 20 } else { 4 << 30 }, faults);
    }
}

/// Ten million operations with `VRAMWISE_STEPS=10000000 cargo test --release -p vramwise-arena --test poison`.
#[test]
fn long_programs_keep_every_rule() {
    let steps = std::env::var("VRAMWISE_STEPS").ok().and_then(|s| s.parse().ok());
    for seed in 0..steps.unwrap_or(60_000) / 10_000u64 {
        run(seed, 10_000, if seed % 3 == 0 { 384 << 20 } else { 4 << 30 }, seed % 2 == 0);
    }
}

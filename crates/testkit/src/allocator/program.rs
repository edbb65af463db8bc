//! Random programs: what a user of the allocator can do, as plain data.
//!
//! An [`Op`] means something in every state: choices are numbers that are taken modulo what there is,
//! and an operation without anything to act on does nothing. So any list of operations can be cut and
//! shrunk. [`Generator`] draws them from a seed, in phases that fill, drain and stir.

use vramwise_model::PoolOptions;
use vramwise_model::settings::Config;

use super::settings::random_config;
use crate::Rng;

const MIB: u64 = 1 << 20;

/// What a program does. Numbers are taken modulo what exists.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Op {
    Malloc {
        size: u64,
        stream: u8,
        thread: u8,
    },
    Free {
        pick: u32,
    },
    /// The block handed out last.
    FreeNewest,
    /// A free that [`Op::Complete`] or a flush completes.
    FreePending {
        pick: u32,
    },
    Complete {
        pick: u32,
    },
    RecordStream {
        pick: u32,
        stream: u8,
    },
    /// The oldest events of a stream pass.
    PassEvents {
        stream: u8,
        count: u8,
    },
    ProcessEvents,
    EmptyCache,
    SetLimit {
        mib: Option<u16>,
    },
    /// Hundredths of the card; 100 lifts the limit.
    SetFraction {
        hundredths: u8,
    },
    SetConfig(Box<Config>),
    CreatePool(PoolOptions),
    /// Routes one thread, or the streams of a capture, to a pool.
    BeginRoute {
        pool: u8,
        thread: u8,
        capture: bool,
    },
    EndRoute {
        pick: u8,
    },
    /// A graph goes: one user fewer.
    ReleasePool {
        pool: u8,
    },
    /// A `MemPool` object goes.
    DestroyPool {
        pool: u8,
    },
    ResetPeak,
    ResetAccumulated,
}

/// What kinds of operations a program contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Traits {
    pub several_streams: bool,
    pub pools: bool,
    /// Settings and limits change at run time.
    pub changes: bool,
    /// Completions are told, as in a replay.
    pub told: bool,
}

/// Draws operations.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    traits: Traits,
    /// Largest ordinary request, bytes.
    largest: u64,
    /// Blocks that this phase wants alive.
    wanted: u64,
    left_in_phase: u64,
    /// Sizes asked for lately.
    recent: [u64; 8],
}

impl Generator {
    /// Operations from a seed for a card of `total` bytes.
    pub fn new(mut rng: Rng, traits: Traits, total: u64) -> Self {
        let largest = total / *rng.pick(&[2, 4, 16]);
        Self { rng, traits, largest, wanted: 0, left_in_phase: 0, recent: [0; 8] }
    }

    /// The next operation, given how many blocks are alive.
    pub fn draw(&mut self, live: usize) -> Op {
        if self.left_in_phase == 0 {
            self.left_in_phase = 20 + self.rng.below(100);
            self.wanted = *self.rng.pick(&[0, 3, 10, 20, 40, 60]);
        }
        self.left_in_phase -= 1;
        if self.rng.one_in(6) {
            return self.rare();
        }
        let grow = if (live as u64) < self.wanted { 7 } else { 3 };
        if self.rng.below(10) < grow {
            let stream = if self.traits.several_streams { byte(&mut self.rng) } else { 0 };
            Op::Malloc { size: self.size(), stream, thread: byte(&mut self.rng) }
        } else {
            Op::Free { pick: index(&mut self.rng) }
        }
    }

    fn rare(&mut self) -> Op {
        let rng = &mut self.rng;
        loop {
            match rng.below(40) {
                0..8 if self.traits.several_streams => {
                    return Op::RecordStream { pick: index(rng), stream: byte(rng) };
                }
                8..13 if self.traits.several_streams => {
                    return Op::PassEvents { stream: byte(rng), count: 1 + byte(rng) % 4 };
                }
                13 if self.traits.several_streams => return Op::ProcessEvents,
                14..17 => return Op::EmptyCache,
                17..19 if self.traits.changes => return limit(rng),
                19..21 if self.traits.changes => {
                    return Op::SetConfig(Box::new(random_config(rng)));
                }
                21..25 if self.traits.told => return Op::FreePending { pick: index(rng) },
                25..28 if self.traits.told => return Op::Complete { pick: index(rng) },
                28..30 if self.traits.pools => return pool(rng),
                30..33 if self.traits.pools => {
                    let (pool, thread) = (byte(rng), byte(rng));
                    return Op::BeginRoute { pool, thread, capture: rng.one_in(3) };
                }
                33..36 if self.traits.pools => return Op::EndRoute { pick: byte(rng) },
                36 if self.traits.pools => return Op::ReleasePool { pool: byte(rng) },
                37 if self.traits.pools => return Op::DestroyPool { pool: byte(rng) },
                38 => return Op::ResetPeak,
                39 if rng.one_in(4) => return Op::ResetAccumulated,
                _ => {}
            }
        }
    }

    fn size(&mut self) -> u64 {
        let size = self.fresh_size();
        let at = self.rng.index(self.recent.len());
        self.recent[at] = size;
        size
    }

    fn fresh_size(&mut self) -> u64 {
        let largest = self.largest;
        let rng = &mut self.rng;
        match rng.below(20) {
            0..3 => random_edge(rng),
            3..6 => near(*rng.pick(&self.recent), rng),
            6..10 => 1 + rng.below(2 * MIB),
            10..12 => 512 * rng.below(4096),
            12..16 => MIB + rng.below(20 * MIB),
            16..18 => MIB * (1 + rng.below(largest / MIB + 1)),
            18 => 1 + rng.below(largest),
            _ => 1 << rng.below(30),
        }
    }
}

/// The same size again, or one that differs by as much as a rule compares with.
fn near(size: u64, rng: &mut Rng) -> u64 {
    let by = *rng.pick(&[0, 0, 512, MIB, 2 * MIB, 20 * MIB, 25 * MIB]);
    if rng.one_in(3) { size.saturating_add(by) } else { size.saturating_sub(by) }
}

/// A size at or next to one of the thresholds of the rules.
pub fn random_edge(rng: &mut Rng) -> u64 {
    let edges = [
        0,
        1,
        512,
        1024,
        MIB - 512,
        MIB,
        2 * MIB,
        9 * MIB,
        10 * MIB - 512,
        10 * MIB,
        11 * MIB,
        19 * MIB,
        20 * MIB,
        32 * MIB,
        64 * MIB,
        100 * MIB,
        1 << 60,
    ];
    let edge = *rng.pick(&edges);
    match rng.below(4) {
        0 => edge.saturating_sub(1),
        1 => edge.saturating_add(1),
        _ => edge,
    }
}

fn limit(rng: &mut Rng) -> Op {
    if rng.one_in(2) {
        let hundredths = *rng.pick(&[5, 20, 50, 70, 99, 100, 100]);
        return Op::SetFraction { hundredths };
    }
    let mib = *rng.pick(&[None, None, Some(30), Some(64), Some(100), Some(300), Some(1000)]);
    Op::SetLimit { mib }
}

fn pool(rng: &mut Rng) -> Op {
    Op::CreatePool(PoolOptions {
        no_split: rng.one_in(4),
        use_on_oom: rng.one_in(3),
        own_allocator: rng.one_in(4),
    })
}

fn byte(rng: &mut Rng) -> u8 {
    rng.bits().to_le_bytes()[0]
}

fn index(rng: &mut Rng) -> u32 {
    u32::from(byte(rng)) << 8 | u32::from(byte(rng))
}

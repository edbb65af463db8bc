//! What kind of load a program is, with the measurements that say so.

use std::collections::BTreeMap;

use vramwise_model::settings::Config;
use vramwise_model::size;
use vramwise_replay::Op;

use crate::case::Case;

/// Kinds of loads that call for different settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// Most bytes stay to the end; the rest repeats.
    LargeStatic,
    /// Nearly all requests are small.
    ManySmall,
    /// Sizes keep changing: sequence lengths, routing, growing caches.
    Dynamic,
    /// The same sizes come again and again.
    Repeating,
}

impl LoadKind {
    /// What people call it.
    pub fn describe(self) -> &'static str {
        match self {
            LoadKind::LargeStatic => "large and static: most of the memory stays in use throughout",
            LoadKind::ManySmall => "many small tensors",
            LoadKind::Dynamic => "mixed and dynamic: large requests of ever new sizes",
            LoadKind::Repeating => "repeating: the same large sizes come again and again",
        }
    }
}

/// Measurements of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The verdict.
    pub kind: LoadKind,
    /// Requests in all.
    pub requests: u64,
    /// Requests of up to 1 MiB.
    pub small_requests: u64,
    /// Requests above 1 MiB.
    pub large_requests: u64,
    /// Distinct rounded sizes among the large requests.
    pub distinct_large_sizes: u64,
    /// Highest sum of requested bytes in use.
    pub peak_live: u64,
    /// Bytes in use at that moment that live for at least half of the program.
    pub static_bytes: u64,
}

impl Load {
    /// Measures the program that needs most.
    pub(crate) fn of(cases: &[Case]) -> Self {
        let loads = cases.iter().map(measure);
        loads.max_by_key(|load| load.peak_live).unwrap_or(EMPTY)
    }

    /// The measurements as sentences.
    pub fn reasons(&self) -> Vec<String> {
        let percent = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
        vec![
            format!(
                "{} % of the bytes at the peak of live memory stay for half of the program or longer",
                percent(self.static_bytes, self.peak_live)
            ),
            format!(
                "{} % of {} requests are 1 MiB or smaller",
                percent(self.small_requests, self.requests),
                self.requests
            ),
            format!(
                "{} distinct sizes in {} large requests",
                self.distinct_large_sizes, self.large_requests
            ),
        ]
    }
}

const EMPTY: Load = Load {
    kind: LoadKind::Repeating,
    requests: 0,
    small_requests: 0,
    large_requests: 0,
    distinct_large_sizes: 0,
    peak_live: 0,
    static_bytes: 0,
};

fn measure(case: &Case) -> Load {
    let plain = Config::default();
    let program = &case.program;
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    let mut load = EMPTY;
    let mut slots = vec![(0u64, 0usize, program.ops.len()); program.slots as usize];
    let (mut live, mut peak_at) = (0u64, 0);
    for (i, op) in program.ops.iter().enumerate() {
        match *op {
            Op::Malloc { size, slot, .. } => {
                slots[slot as usize] = (size, i, program.ops.len());
                live = live.saturating_add(size);
                if live > load.peak_live {
                    (load.peak_live, peak_at) = (live, i);
                }
                load.requests += 1;
                let rounded = size::round_size(&plain, size);
                if size::is_small(rounded) {
                    load.small_requests += 1;
                } else {
                    load.large_requests += 1;
                    *sizes.entry(rounded).or_default() += 1;
                }
            }
            Op::Free { slot } | Op::Complete { slot } => {
                live = live.saturating_sub(slots[slot as usize].0);
                slots[slot as usize].2 = i;
            }
            _ => {}
        }
    }
    load.distinct_large_sizes = sizes.len() as u64;
    let half = program.ops.len() / 2;
    let stays = |&&(_, from, to): &&(u64, usize, usize)| {
        from <= peak_at && peak_at < to && to - from >= half
    };
    load.static_bytes = slots.iter().filter(stays).map(|(size, ..)| size).sum();
    load.kind = kind(&load);
    load
}

fn kind(load: &Load) -> LoadKind {
    let share = |part: u64, whole: u64, percent: u64| part * 100 >= whole * percent;
    if load.large_requests == 0 || share(load.small_requests, load.requests, 97) {
        LoadKind::ManySmall
    } else if load.distinct_large_sizes >= 8
        && share(load.distinct_large_sizes, load.large_requests, 4)
    {
        LoadKind::Dynamic
    } else if share(load.static_bytes, load.peak_live, 60) {
        LoadKind::LargeStatic
    } else {
        LoadKind::Repeating
    }
}

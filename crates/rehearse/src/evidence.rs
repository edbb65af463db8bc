//! What the recorded history says: who holds the peak, and whether chance could have changed it.
//!
//! The caching allocator picks among free blocks of equal size by address, and addresses belong to the
//! process. A rehearsal is one draw; the same program is replayed under other orders of addresses, with
//! frees that directly follow one another in another order (Python and autograd free in the order of
//! hash tables), and the figures' range is told.

use std::path::Path;
use std::sync::Arc;

use vramwise_analyze::peak::{self, At, Options};
use vramwise_model::stats::{Family, Stats};
use vramwise_replay::{Addresses, Conditions, Op, Program, Recording, recorded_under, what_if};
use vramwise_trace::{ReadOptions, RecordedSettings};
use vramwise_types::TorchVersion;

/// Orders of addresses that are tried.
const ORDERS: [Addresses; 6] = [
    Addresses::Rising,
    Addresses::Falling,
    Addresses::Shuffled(1),
    Addresses::Shuffled(2),
    Addresses::Shuffled(3),
    Addresses::Shuffled(4),
];

/// What one device's history tells.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The device.
    pub device: u32,
    /// Entries of the history.
    pub events: usize,
    /// Who held the allocated memory at its peak, most bytes first.
    pub holders: Vec<Holder>,
    /// What the program was doing at the peak: event of the history.
    pub peak_event: Option<usize>,
    /// Smallest and largest peaks, allocated and reserved; `None` where the model does not reproduce the
    /// history, so that nothing can be said.
    pub ranges: Option<Ranges>,
    /// vramwise's own allocator served it, whose addresses the model of PyTorch's does not know.
    pub drop_in: bool,
}

/// Bytes of one line of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The line.
    pub place: String,
    /// Bytes that it held.
    pub bytes: u64,
    /// Blocks that it held.
    pub blocks: u64,
}

/// The figures under several orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// Peak of allocated bytes.
    pub allocated: (u64, u64),
    /// Peak of reserved bytes.
    pub reserved: (u64, u64),
    /// Replays that were made.
    pub runs: usize,
}

impl Ranges {
    /// Whether chance plays no part.
    pub fn is_single(&self) -> bool {
        self.allocated.0 == self.allocated.1 && self.reserved.0 == self.reserved.1
    }

    fn add(&mut self, stats: &Stats) {
        let widen = |range: &mut (u64, u64), value: u64| {
            *range = (range.0.min(value), range.1.max(value));
        };
        widen(&mut self.allocated, peak_of(stats, Family::AllocatedBytes));
        widen(&mut self.reserved, peak_of(stats, Family::ReservedBytes));
        self.runs += 1;
    }
}

fn peak_of(stats: &Stats, family: Family) -> u64 {
    u64::try_from(stats.all(family).peak).unwrap_or(0)
}

/// Looks at the snapshot of a rehearsal. `card` is the card's memory where a request found none: a limit where
/// the history alone does not tell one, as the program's own `set_per_process_memory_fraction` does.
///
/// # Errors
/// A sentence where the file cannot be read.
pub fn look(path: &Path, torch: &str, card: Option<u64>) -> Result<Vec<Evidence>, String> {
    let snapshot = vramwise_trace::read_path(path, &ReadOptions::default())
        .map_err(|error| error.to_string())?;
    let version = version_of(torch).or(snapshot.version_guess).unwrap_or_default();
    let options = Options { at: At::Peak, frames: 1, ..Options::new(version) };
    let Ok(inspection) = peak::inspect(&snapshot, &options) else { return Ok(Vec::new()) };
    let found = inspection.devices.iter().map(|inspected| {
        let holder = |group: &peak::Group| Holder {
            place: group.label.clone(),
            bytes: group.bytes,
            blocks: group.blocks,
        };
        let device = &snapshot.devices[inspected.device as usize];
        let under = recorded_under(&snapshot, device, version);
        let mut verify = under.verify(version);
        let mut limits = [None, card].into_iter().take(if card.is_some() { 2 } else { 1 });
        let exact = limits.find_map(|limit| {
            verify.limit = limit;
            let recording = (!device.events.is_empty()).then(|| Recording::verify(device, &verify));
            recording.filter(Recording::is_exact)
        });
        Evidence {
            device: inspected.device,
            events: inspected.events,
            holders: inspected.memory.groups.iter().map(holder).collect(),
            peak_event: inspected.memory.when.event,
            ranges: exact.map(|recording| {
                let conditions = Conditions {
                    limit: recording.limit,
                    changes: under.changes.clone(),
                    ..Conditions::new(under.config.clone(), recording.version)
                };
                ranges(&recording, &conditions)
            }),
            drop_in: snapshot.settings.as_ref().is_some_and(RecordedSettings::of_drop_in),
        }
    });
    Ok(found.collect())
}

/// Replays under other orders.
fn ranges(recording: &Recording, conditions: &Conditions) -> Ranges {
    let allocated = peak_of(&recording.stats, Family::AllocatedBytes);
    let reserved = peak_of(&recording.stats, Family::ReservedBytes);
    let mut ranges =
        Ranges { allocated: (allocated, allocated), reserved: (reserved, reserved), runs: 1 };
    for (n, order) in (0u64..).zip(ORDERS) {
        let conditions = Conditions { addresses: order, ..conditions.clone() };
        ranges.add(&what_if(&recording.program, &recording.calls, &conditions).stats);
        let shuffled = reordered(&recording.program, n + 1);
        ranges.add(&what_if(&shuffled, &Arc::clone(&recording.calls), &conditions).stats);
    }
    ranges
}

/// The program with frees that directly follow one another in another order.
fn reordered(program: &Program, seed: u64) -> Program {
    let mut program = program.clone();
    let mut random = Random(seed);
    let mut start = 0;
    while start < program.ops.len() {
        let run =
            program.ops[start..].iter().take_while(|op| matches!(op, Op::Free { .. })).count();
        for i in (1..run).rev() {
            program.ops.swap(start + i, start + random.below(i + 1));
        }
        start += run.max(1);
    }
    program
}

/// splitmix64: the same seed gives the same order everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % n as u64).unwrap_or(0)
    }
}

/// The release of a version such as `2.11.0+cu130`.
fn version_of(text: &str) -> Option<TorchVersion> {
    let mut parts = text.split(['.', '+']);
    let (major, minor) = (parts.next()?, parts.next()?);
    format!("{major}.{minor}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frees_that_follow_one_another_change_places() {
        let malloc = |slot| Op::Malloc { size: 512, stream: 0, pool: 0, slot };
        let free = |slot| Op::Free { slot };
        let ops =
            vec![malloc(0), malloc(1), malloc(2), free(0), free(1), free(2), malloc(3), free(3)];
        let program = Program { ops: ops.clone(), ..Program::default() };
        let mut seen = Vec::new();
        for seed in 0..40 {
            let other = reordered(&program, seed).ops;
            assert_eq!(other[..3], ops[..3]);
            assert_eq!(other[6..], ops[6..]);
            let mut frees = other[3..6].to_vec();
            if !seen.contains(&frees) {
                seen.push(frees.clone());
            }
            frees.sort_by_key(|op| if let Op::Free { slot } = op { *slot } else { 0 });
            assert_eq!(frees, ops[3..6]);
        }
        assert_eq!(seen.len(), 6, "every order turns up");
    }

    #[test]
    fn a_program_under_a_limit_of_its_own_is_replayed_though_the_card_is_larger() {
        let name = "../../testdata/snapshots/oom_fragmented__default.snapshot.pickle.gz";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        for card in [None, Some(150_109_880_320)] {
            let told = look(&path, "2.11.0+cu130", card).expect("a recording of ours");
            let ranges = told[0].ranges.expect("it is replayed");
            // The program was allowed 6 GiB.
            assert!(ranges.reserved.1 <= 6 << 30, "{ranges:?}");
            assert!(ranges.allocated.0 > 1 << 30, "{ranges:?}");
        }
    }

    #[test]
    fn a_version_is_read_from_what_pytorch_calls_itself() {
        assert_eq!(version_of("2.11.0+cu130").map(|v| v.to_string()), Some("2.11".to_owned()));
        assert_eq!(version_of("nightly"), None);
    }
}

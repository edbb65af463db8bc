//! Replaying one setting on all programs.

use vramwise_model::Allocator;
use vramwise_model::NoHistory;
use vramwise_model::device::Device;
use vramwise_model::settings::Config;
use vramwise_model::stats::Family;
use vramwise_replay::{Addresses, Conditions, Observer, Outcome, what_if_observed};
use vramwise_types::TorchVersion;

use crate::candidate::{Candidate, DeviceCalls};
use crate::case::Case;
use crate::cost;

/// A setting to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The setting.
    pub config: Config,
    /// The setting as people write it.
    pub conf: String,
}

impl Setting {
    /// The setting, written as that version reads it.
    pub fn new(config: Config, version: TorchVersion) -> Self {
        let conf = config.to_conf_string(version);
        Self { config, conf }
    }
}

/// What all replays of one search have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub(crate) version: TorchVersion,
    pub(crate) capacity: Option<u64>,
    pub(crate) total: Option<u64>,
    /// Whether a program's own capacity holds for it.
    pub(crate) own_capacity: bool,
}

/// Looks at the allocator whenever it holds more than ever before.
#[derive(Debug, Default)]
struct AtPeak {
    peak: u64,
    largest_free_block: u64,
    inactive_split: i64,
}

impl Observer for AtPeak {
    #[inline]
    fn after<D: Device>(&mut self, _op: usize, allocator: &Allocator<D>) -> bool {
        if allocator.reserved_bytes() > self.peak {
            self.peak = allocator.reserved_bytes();
            self.largest_free_block = allocator.largest_free_block();
            self.inactive_split = allocator.stats().all(Family::InactiveSplitBytes).current;
        }
        true
    }
}

/// Address orders beside the driver's, where ties matter.
const OTHER_ORDERS: [Addresses; 2] = [Addresses::Rising, Addresses::Falling];
/// Further orders for the settings that the report shows.
const FINAL_ORDERS: [Addresses; 2] = [Addresses::Shuffled(1), Addresses::Shuffled(2)];

fn conditions(setting: &Setting, common: &Common, case: &Case, addresses: Addresses) -> Conditions {
    Conditions {
        limit: common.capacity.or(case.capacity.filter(|_| common.own_capacity)),
        total: common.total,
        addresses,
        ..Conditions::new(setting.config.clone(), common.version)
    }
}

/// Replays a setting on all programs, with the driver's addresses.
pub(crate) fn evaluate(setting: &Setting, cases: &[Case], common: &Common) -> Candidate {
    let mut candidate = empty(setting);
    for case in cases {
        let mut at_peak = AtPeak::default();
        let conditions = conditions(setting, common, case, Addresses::Driver);
        let outcome =
            what_if_observed(&case.program, &case.calls, &conditions, &mut at_peak, &mut NoHistory);
        let before = candidate.peak_reserved;
        add(&mut candidate, &outcome, &at_peak, common.capacity);
        if candidate.peak_reserved > before {
            candidate.live_of_peak = case.program.peak_live_bytes();
        }
    }
    candidate.peak_reserved_range = (candidate.peak_reserved, candidate.peak_reserved);
    candidate
}

/// Widens a candidate's range by other address orders.
pub(crate) fn widen(candidate: &mut Candidate, cases: &[Case], common: &Common, last: bool) {
    if candidate.ties == 0 {
        return;
    }
    let setting = Setting { config: candidate.config.clone(), conf: candidate.conf.clone() };
    let orders = if last { &FINAL_ORDERS } else { &OTHER_ORDERS };
    for order in orders {
        let peaks = cases.iter().map(|case| {
            let conditions = conditions(&setting, common, case, order.clone());
            let outcome = vramwise_replay::what_if(&case.program, &case.calls, &conditions);
            bytes(outcome.stats.all(Family::ReservedBytes).peak)
        });
        let peak = peaks.max().unwrap_or(0);
        let range = &mut candidate.peak_reserved_range;
        *range = (range.0.min(peak), range.1.max(peak));
    }
}

fn empty(setting: &Setting) -> Candidate {
    Candidate {
        config: setting.config.clone(),
        conf: setting.conf.clone(),
        peak_reserved: 0,
        live_of_peak: 0,
        peak_reserved_range: (0, 0),
        peak_allocated: 0,
        oom_runs: 0,
        failed_requests: 0,
        runs: 0,
        largest_free_block: 0,
        inactive_split: 0,
        retries: 0,
        device_calls: DeviceCalls::default(),
        device_ms: 0.0,
        smallest_capacity: None,
        dominated: false,
        ties: 0,
    }
}

/// A limit of PyTorch's looks at requests; expandable segments that grow by more than that pass it by some memory. A card of
/// that size would not have had it, so such a run counts as one that is out of memory.
pub(crate) fn exceeds(outcome: &Outcome, capacity: Option<u64>) -> bool {
    capacity.is_some_and(|most| bytes(outcome.stats.all(Family::ReservedBytes).peak) > most)
}

fn add(candidate: &mut Candidate, outcome: &Outcome, at_peak: &AtPeak, capacity: Option<u64>) {
    let stats = &outcome.stats;
    let peak = bytes(stats.all(Family::ReservedBytes).peak);
    if peak >= candidate.peak_reserved {
        candidate.peak_reserved = peak;
        candidate.largest_free_block = at_peak.largest_free_block;
        candidate.inactive_split = bytes(at_peak.inactive_split);
    }
    let allocated = bytes(stats.all(Family::AllocatedBytes).peak);
    candidate.peak_allocated = candidate.peak_allocated.max(allocated);
    candidate.runs += 1;
    candidate.oom_runs += usize::from(!outcome.ooms.is_empty() || exceeds(outcome, capacity));
    candidate.failed_requests += outcome.ooms.len();
    candidate.retries += bytes(stats.num_alloc_retries);
    candidate.ties += outcome.ties;
    let segments = stats.all(Family::Segment);
    let reserved = stats.all(Family::ReservedBytes);
    let (mallocs, frees) = (bytes(segments.allocated), bytes(segments.freed));
    let (maps, unmaps) =
        (bytes(stats.num_device_alloc) - mallocs, bytes(stats.num_device_free) - frees);
    let calls = &mut candidate.device_calls;
    calls.malloc += mallocs;
    calls.free += frees;
    calls.map += maps;
    calls.unmap += unmaps;
    // Ordinary and expandable memory share one counter of bytes; a run nearly always uses one kind.
    let (taken, given) = (bytes(reserved.allocated), bytes(reserved.freed));
    let (malloc_bytes, map_bytes) = shares(mallocs, maps, taken);
    let (free_bytes, unmap_bytes) = shares(frees, unmaps, given);
    candidate.device_ms += cost::milliseconds(
        (mallocs, malloc_bytes),
        (frees, free_bytes),
        (map_bytes, unmap_bytes),
        candidate.config.large_segment_size,
    );
}

/// Divides bytes between two kinds of calls by their numbers.
fn shares(ordinary: u64, expandable: u64, bytes: u64) -> (u64, u64) {
    let calls = u128::from(ordinary) + u128::from(expandable);
    let first = (u128::from(bytes) * u128::from(ordinary)).checked_div(calls).unwrap_or(0);
    let first = u64::try_from(first).unwrap_or(bytes);
    (first, bytes - first)
}

/// Counters are never negative here.
pub(crate) fn bytes(counter: i64) -> u64 {
    u64::try_from(counter).unwrap_or(0)
}

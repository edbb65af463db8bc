//! A recording, verified: what the model made of it and the program recovered from it.

use std::sync::Arc;

use vramwise_model::device::DeviceCall;
use vramwise_model::settings::Config;
use vramwise_model::stats::Stats;
use vramwise_model::{Allocator, BlockState, SegmentView};
use vramwise_trace::DeviceTrace;
use vramwise_types::{Action, TorchVersion};

use crate::ANY_CARD;
use crate::checker::Exact;
use crate::divergence::{self, Divergence};
use crate::feed::Feed;
use crate::final_state;
use crate::history::History;
use crate::pools::{Inference, PoolMap};
use crate::program::Program;
use crate::requests;
use crate::ties;
use crate::verify::{FailedRequest, Run, Setup, Verifier, refuses};

/// What a verification is told besides the file.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Settings of the recording.
    pub config: Config,
    /// Changes of settings in mid-run: (event of the file, settings), ascending.
    pub changes: Vec<(usize, Config)>,
    /// PyTorch's version.
    pub version: TorchVersion,
    /// Whether the order of other releases among free blocks of equal size may be tried where that of
    /// `version` does not reproduce the recording: it is only a guess then.
    pub other_ties: bool,
    /// Bytes that the process was allowed to hold; `None` = not known.
    pub limit: Option<u64>,
    /// The card's bytes; `None` = not known.
    pub total: Option<u64>,
}

impl VerifyOptions {
    /// These settings, no limit; the version is a guess.
    pub fn new(config: Config, version: TorchVersion) -> Self {
        Self { config, changes: Vec::new(), version, other_ties: true, limit: None, total: None }
    }
}

/// How many of the recorded entries the model reproduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Recorded entries.
    pub recorded: u64,
    /// Entries that agree to the byte.
    pub exact: u64,
}

/// Agreement per kind of entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // PyTorch's names of the actions
pub struct Agreements {
    pub allocs: Agreement,
    pub segment_allocs: Agreement,
    pub segment_frees: Agreement,
    pub segment_maps: Agreement,
    pub segment_unmaps: Agreement,
    pub ooms: Agreement,
}

impl Agreements {
    /// Whether every recorded entry was reproduced.
    pub fn all_exact(&self) -> bool {
        [
            self.allocs,
            self.segment_allocs,
            self.segment_frees,
            self.segment_maps,
            self.segment_unmaps,
            self.ooms,
        ]
        .iter()
        .all(|a| a.exact == a.recorded)
    }
}

/// A verified recording of one device.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Entries reproduced.
    pub agreement: Agreements,
    /// Where model and recording part first.
    pub first_divergence: Option<Divergence>,
    /// How the final segments and blocks differ; `None` = they agree to the byte.
    pub final_difference: Option<String>,
    /// Why the file cannot come from PyTorch's allocator, where that is certain.
    pub impossible: Option<String>,
    /// Whether another allocator placed the blocks: only the requests are taken, and nothing is compared.
    pub requests_only: bool,
    /// The model's counters at the end; zero where nothing is compared.
    pub stats: Stats,
    /// The model's segments at the end.
    pub segments: Vec<SegmentView>,
    /// Pool ids by pool index.
    pub pool_ids: Vec<(u64, u64)>,
    /// The program.
    pub program: Program,
    /// The recorded device calls.
    pub calls: Arc<[DeviceCall]>,
    /// Failed requests of the recording: (event, rounded bytes).
    pub ooms: Vec<(usize, u64)>,
    /// Entries of the history that were replayed.
    pub entries: usize,
    /// The limit that was in force, given or inferred.
    pub limit: Option<u64>,
    /// What had to be assumed.
    pub assumptions: Vec<String>,
    /// The release whose allocator was replayed.
    pub version: TorchVersion,
}

impl Recording {
    /// Whether the model reproduced the whole file.
    pub fn is_exact(&self) -> bool {
        !self.requests_only
            && self.first_divergence.is_none()
            && self.final_difference.is_none()
            && self.impossible.is_none()
            && self.agreement.all_exact()
    }

    /// Replays a device's history under its own settings.
    ///
    /// Where vramwise's allocator made it, its requests are taken alone ([`Recording::requests_only`]).
    pub fn verify(device: &DeviceTrace, options: &VerifyOptions) -> Self {
        let history = History::of(device);
        if device.drop_in {
            return requests::recording(&history, device, options);
        }
        let mut assumptions = Vec::new();
        let Solved { setup, run, pools } = ties::solve(&history, device, options, &mut assumptions);
        finish(device, &history, run, &pools, setup, assumptions)
    }
}

/// A history with everything that its replay takes, and that replay.
pub(crate) struct Solved {
    pub(crate) setup: Setup,
    pub(crate) run: Run,
    pub(crate) pools: PoolMap,
}

/// Replays a history by the rules of one release, with pools inferred where it does not do without.
pub(crate) fn solve_as(
    version: TorchVersion,
    history: &History,
    device: &DeviceTrace,
    options: &VerifyOptions,
    assumptions: &mut Vec<String>,
) -> Solved {
    let mut setup = Setup { version, ..setup(history, device, options, assumptions) };
    let ids = crate::pools::snapshot_pools(device);
    let told = crate::pools::told(history, device, &setup);
    let mut pools = told.unwrap_or_else(PoolMap::all_default);
    let mut run = Verifier::new(history, &setup, &pools).run();
    if run.mismatch.is_some() && setup.limit.is_none() && !refuses(history, &setup) {
        let full = Setup { full_card: true, ..setup.clone() };
        let second = Verifier::new(history, &full, &pools).run();
        if second.mismatch.is_none() {
            (setup, run) = (full, second);
        }
    }
    let mismatch = run.mismatch.is_some() || ids.len() > 1 && !pools.is_told();
    if mismatch && let Some((second, inferred)) = infer_pools(history, device, &setup) {
        let further =
            second.mismatch.is_none() || run.mismatch.is_some() && second.reached >= run.reached;
        if further {
            assumptions.push(format!(
                "the history does not say which pool a request went to: {} pools were inferred \
                 from what the allocator passed over and from the final snapshot",
                inferred.count()
            ));
            run = second;
            pools = inferred;
        }
    }
    if run.mismatch.is_some()
        && !setup.start.is_empty()
        && let Some(known) = crate::pools::by_segments(history, device, &setup.start)
    {
        let second = Verifier::new(history, &setup, &known).run();
        if second.reached > run.reached {
            assumptions.push(format!(
                "the history does not say which pool a request went to: the {} pools of the final \
                 snapshot are taken for those of their segments, and segments that were returned for \
                 the default pool's",
                known.count()
            ));
            run = second;
            pools = known;
        }
    }
    Solved { setup, run, pools }
}

/// Entries that replays with mended pools may take together.
const MENDING_MAX: usize = 20_000_000;

/// Infers pools and replays with them. The replay that came furthest; of two that came to the end the one
/// with fewer pools, unless it is the one that needs pools which never split blocks, and saves few.
fn infer_pools(history: &History, device: &DeviceTrace, setup: &Setup) -> Option<(Run, PoolMap)> {
    let mut work = 0;
    let inference = Inference::of(history, device, setup, false)?;
    let depends = inference.depends_on_splits();
    let plain = mend_pools(inference, history, setup, &mut work);
    if !depends {
        return plain;
    }
    let unsplit = Inference::of(history, device, setup, true)
        .and_then(|inference| mend_pools(inference, history, setup, &mut work));
    match (plain, unsplit) {
        (Some(plain), Some(unsplit)) => {
            let further = unsplit.0.reached > plain.0.reached;
            let as_far = unsplit.0.reached == plain.0.reached;
            let simpler = 4 * unsplit.1.count() < 3 * plain.1.count();
            Some(if further || as_far && simpler { unsplit } else { plain })
        }
        (plain, unsplit) => plain.or(unsplit),
    }
}

/// Replays, learns from what went wrong and tries again.
fn mend_pools(
    mut inference: Inference<'_>,
    history: &History,
    setup: &Setup,
    work: &mut usize,
) -> Option<(Run, PoolMap)> {
    let mut best: Option<(Run, PoolMap)> = None;
    loop {
        let pools = inference.map();
        let run = Verifier::new(history, setup, &pools).run();
        let mismatch = run.mismatch;
        *work += history.len();
        if best.as_ref().is_none_or(|(b, _)| run.mismatch.is_none() || run.reached > b.reached) {
            best = Some((run, pools));
        }
        match mismatch {
            Some(mismatch) if *work < MENDING_MAX && inference.learn(&mismatch) => {}
            _ => return best,
        }
    }
}

fn setup(
    history: &History,
    device: &DeviceTrace,
    options: &VerifyOptions,
    assumptions: &mut Vec<String>,
) -> Setup {
    let changes = options.changes.iter().map(|(e, c)| (history.entry_at(*e), c.clone())).collect();
    let mut start = Vec::new();
    let empty = crate::start::begins_empty(history, device);
    if !empty && history.len() > 0 {
        let ids = crate::pools::snapshot_pools(device);
        match crate::start::rebuild(history, device, &options.config, &ids) {
            Ok(segments) => {
                assumptions.push(format!(
                    "the recording began in mid-run (or its ring buffer wrapped): the {} segments and \
                     {} blocks in use at its start were rebuilt from the final state and the history; \
                     counters start at that moment",
                    segments.len(),
                    segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state != BlockState::Inactive).count()
                ));
                start = segments;
            }
            Err(why) => assumptions.push(format!(
                "the history does not begin with an empty cache, and the state at its start could not \
                 be rebuilt: going back from the end, event {} cannot be undone ({})",
                history.event_of(why.at),
                why.what
            )),
        }
    }
    Setup {
        config: options.config.clone(),
        version: options.version,
        limit: options.limit,
        total: options.total.unwrap_or(ANY_CARD),
        full_card: false,
        changes,
        start,
    }
}

/// The capacity that failed requests point to (§16.5). Where the driver had less free than was asked,
/// the card was full: what was held and what was free then. Else a limit refused, and the most that was
/// ever held is the strictest limit that allows what succeeded.
fn infer_capacity(ooms: &[FailedRequest], most_held: u64) -> Option<u64> {
    let full = |oom: &&FailedRequest| oom.device_free > 0 && oom.device_free < oom.segment;
    let card =
        ooms.iter().filter(full).map(|oom| oom.reserved.saturating_add(oom.device_free)).max();
    if ooms.is_empty() { None } else { Some(card.unwrap_or(0).max(most_held)) }
}

fn finish(
    device: &DeviceTrace,
    history: &History,
    run: Run,
    pools: &PoolMap,
    setup: Setup,
    mut assumptions: Vec<String>,
) -> Recording {
    let Run { allocator, exact, mismatch, program, ooms, most_held, .. } = run;
    let mut limit = setup.limit;
    if setup.full_card {
        limit = Some(most_held);
        assumptions.push(format!(
            "memory was returned as if the card had been full, but no request failed: {most_held} bytes, \
             the most that was held, are assumed as the capacity (give the true one with --capacity)"
        ));
    }
    if limit.is_none()
        && let Some(bytes) = infer_capacity(&ooms, most_held)
    {
        limit = Some(bytes);
        assumptions.push(format!(
            "requests failed but no capacity was given: {bytes} bytes are assumed from what was held \
             and what the driver had free then (give the true one with --capacity)"
        ));
    }
    let mut first_divergence = mismatch.map(|m| divergence::explain(history, &allocator, &m));
    let absurd = history.absurd.filter(|_| first_divergence.is_none());
    if let Some((event, entry)) = absurd {
        first_divergence = Some(divergence::absurd(event, &entry));
    }
    if let (None, Some(event)) = (&first_divergence, history.unknown) {
        first_divergence = Some(divergence::unknown(event));
    }
    let final_difference = match first_divergence {
        Some(_) => Some("the replay did not reach the end".to_owned()),
        None => final_state::difference(device, &allocator, history, pools, setup.start.is_empty()),
    };
    Recording {
        agreement: agreement(history, exact),
        impossible: match &absurd {
            Some((event, _)) => Some(format!("event {event} speaks of memory that no device has")),
            None => first_divergence.as_ref().and_then(|_| crate::impossible::proof(history)),
        },
        requests_only: false,
        first_divergence,
        final_difference,
        stats: allocator.stats().clone(),
        segments: segments(&allocator),
        pool_ids: pools.ids().to_vec(),
        program,
        calls: calls(history),
        ooms: ooms.iter().map(|oom| (history.event_of(oom.at), oom.size)).collect(),
        entries: history.len(),
        limit,
        assumptions,
        version: setup.version,
    }
}

fn segments(allocator: &Allocator<Feed>) -> Vec<SegmentView> {
    allocator.segments()
}

fn agreement(history: &History, exact: Exact) -> Agreements {
    let mut recorded = Exact::default();
    for entry in &history.entries {
        recorded.count(entry.action);
    }
    let pair = |f: fn(&Exact) -> u64| Agreement { recorded: f(&recorded), exact: f(&exact) };
    Agreements {
        allocs: pair(|e| e.allocs),
        segment_allocs: pair(|e| e.segment_allocs),
        segment_frees: pair(|e| e.segment_frees),
        segment_maps: pair(|e| e.segment_maps),
        segment_unmaps: pair(|e| e.segment_unmaps),
        ooms: pair(|e| e.ooms),
    }
}

/// The device calls of the recording: ordinary segments only, expandable ones have no choice of address.
fn calls(history: &History) -> Arc<[DeviceCall]> {
    let call = |e: &crate::history::Ev| match e.action {
        Action::SegmentAlloc => Some(DeviceCall::Malloc { size: e.size, addr: e.addr }),
        Action::SegmentFree => Some(DeviceCall::Free { addr: e.addr }),
        _ => None,
    };
    history.entries.iter().filter_map(call).collect()
}

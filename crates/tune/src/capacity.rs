//! The smallest limit under which a program still runs.

use vramwise_model::device::Device;
use vramwise_model::settings::Config;
use vramwise_model::{Allocator, NoHistory};
use vramwise_replay::{Addresses, Conditions, Observer, what_if_observed};

use crate::case::Case;
use crate::evaluate::{Common, exceeds};

/// Limits are looked for on this grid: the device gives memory in pieces of 2 MiB.
const STEP: u64 = 2 << 20;

/// Ends a replay at its first failed request.
struct UntilFailure;

impl Observer for UntilFailure {
    #[inline]
    fn after<D: Device>(&mut self, _op: usize, allocator: &Allocator<D>) -> bool {
        allocator.stats().num_ooms == 0
    }
}

/// The smallest limit, in bytes, found by bisection with exact replays between the live bytes (below
/// which nothing can run) and the peak without a limit. Retries and garbage collection make it less than
/// the peak. A limit above it can fail all the same where the cache's state differs; the one returned was
/// replayed.
pub(crate) fn smallest(
    config: &Config,
    cases: &[Case],
    common: &Common,
    peak: u64,
    live: u64,
) -> Option<u64> {
    let runs = |limit: u64| cases.iter().all(|case| survives(config, case, common, limit));
    let (mut fails, mut works) = (live / STEP, peak.div_ceil(STEP));
    if !runs(works * STEP) {
        return None;
    }
    while fails < works {
        let middle = fails + (works - fails) / 2;
        if runs(middle * STEP) {
            works = middle;
        } else {
            fails = middle + 1;
        }
    }
    Some(works * STEP)
}

fn survives(config: &Config, case: &Case, common: &Common, limit: u64) -> bool {
    let conditions = Conditions {
        limit: Some(limit),
        total: common.total,
        addresses: Addresses::Driver,
        ..Conditions::new(config.clone(), common.version)
    };
    let outcome = what_if_observed(
        &case.program,
        &case.calls,
        &conditions,
        &mut UntilFailure,
        &mut NoHistory,
    );
    outcome.ooms.is_empty() && !exceeds(&outcome, Some(limit))
}

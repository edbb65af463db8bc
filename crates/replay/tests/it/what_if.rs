//! Recovered programs under other settings.

use std::sync::Arc;

use vramwise_replay::{Addresses, Conditions, what_if};
use vramwise_types::{Action, TorchVersion};

use crate::common::{Recorded, counters_like};

#[test]
fn a_program_under_its_own_settings_and_addresses_counts_what_its_recording_counted() {
    for name in
        ["lstm_varlen__default", "cudagraph__default", "mempool__default", "pools2__default"]
    {
        let recorded = Recorded::named(name);
        let recording = recorded.verify();
        let mut conditions = Conditions::new(recorded.options().config, TorchVersion::default());
        conditions.limit = recorded.options().limit;
        let outcome = what_if(&recording.program, &recording.calls, &conditions);
        let want = recorded.counters();
        assert_eq!(counters_like(&outcome.stats, &want), want, "{name}");
    }
}

#[test]
fn a_program_under_other_settings_counts_what_it_really_counted_there() {
    let default = Recorded::named("lstm_varlen__default").verify();
    let expandable = Recorded::named("lstm_varlen__expandable");
    let mut conditions = Conditions::new(expandable.options().config, TorchVersion::default());
    let events = &expandable.device().events;
    let new = (0..events.len()).filter(|i| events.action[*i] == Action::SegmentAlloc);
    conditions.addresses = Addresses::Listed(new.map(|i| events.addr[i]).collect::<Arc<[u64]>>());
    let outcome = what_if(&default.program, &default.calls, &conditions);
    let want = expandable.counters();
    assert_eq!(counters_like(&outcome.stats, &want), want);
}

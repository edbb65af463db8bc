//! Recordings with private pools, which a history does not name.

use vramwise_replay::ReleaseScope;

use crate::common::{Recorded, counters_like};

#[test]
fn recordings_with_private_pools_are_reproduced_entry_by_entry() {
    for name in ["mempool__default", "graphs_shared__default", "pools2__default"] {
        let recorded = Recorded::named(name);
        let recording = recorded.verify();
        assert_eq!(recording.first_divergence, None, "{name}");
        assert_eq!(recording.final_difference, None, "{name}");
        let want = recorded.counters();
        assert_eq!(counters_like(&recording.stats, &want), want, "{name}");
        assert!(recording.pool_ids.len() > 1, "{name}");
        assert!(recording.assumptions.iter().any(|a| a.contains("pools were inferred")), "{name}");
    }
}

#[test]
fn the_end_of_a_pool_releases_that_pool_alone() {
    let recording = Recorded::named("mempool__default").verify();
    let alone = |scope: &ReleaseScope| !scope.default && scope.private.len() == 1;
    assert!(recording.program.scopes.iter().any(alone), "{:?}", recording.program.scopes);
}

#[test]
fn pools_that_never_split_blocks_are_recognised() {
    let recorded = Recorded::named("pools5__expandable");
    let recording = recorded.verify();
    assert!(recording.is_exact(), "{:?}", recording.first_divergence);
    assert!(!recording.program.no_split.is_empty());
    let want = recorded.counters();
    assert_eq!(counters_like(&recording.stats, &want), want);
}

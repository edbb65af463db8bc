//! Every sequence of up to six operations over three sizes and two streams on a card so small that
//! flushes and failures are common.

use vramwise_model::settings::{Config, parse};
use vramwise_testkit::allocator::lockstep::{Lockstep, Start};
use vramwise_testkit::allocator::program::Op;
use vramwise_types::TorchVersion;

const MIB: u64 = 1 << 20;

/// A small one (three share a segment), a large one (two share a segment), and the edge where the
/// device is asked for the size itself.
const SIZES: [u64; 3] = [600 << 10, 9 * MIB, 10 * MIB];

/// Number of sequences that ended in each kind of state, to see that the search went somewhere.
#[derive(Debug, Default)]
struct Visited {
    sequences: u64,
    ooms: u64,
    retries: u64,
}

fn operations() -> Vec<Op> {
    let mut ops = Vec::new();
    for size in SIZES {
        for stream in 0..2 {
            ops.push(Op::Malloc { size, stream, thread: 0 });
        }
    }
    ops.extend([Op::Free { pick: 0 }, Op::FreeNewest, Op::EmptyCache]);
    ops
}

/// Tries every operation and goes on from there. What would do nothing is left out: it leads to the
/// states of a shorter sequence.
fn explore(from: &Lockstep, depth: u32, ops: &[Op], path: &mut Vec<Op>, visited: &mut Visited) {
    for op in ops {
        let frees = matches!(op, Op::Free { .. } | Op::FreeNewest);
        let same = matches!(op, Op::FreeNewest) && from.live() == 1;
        let again = *op == Op::EmptyCache && path.last() == Some(op);
        if (frees && from.live() == 0) || same || again {
            continue;
        }
        let mut pair = from.clone();
        path.push(op.clone());
        if let Err(what) = pair.step(op, true) {
            panic!("{path:?}: {what}");
        }
        visited.sequences += 1;
        let stats = pair.model().stats();
        visited.ooms += u64::from(stats.num_ooms > 0);
        visited.retries += u64::from(stats.num_alloc_retries > stats.num_ooms);
        if depth > 1 {
            explore(&pair, depth - 1, ops, path, visited);
        }
        path.pop();
    }
}

fn search(config: Config, limit_mib: Option<u16>, depth: u32) -> Visited {
    let mut pair = Lockstep::new(Start { config, total: 32 * MIB, ..Start::default() });
    pair.step(&Op::SetLimit { mib: limit_mib }, true).expect("nothing is held");
    let mut visited = Visited::default();
    explore(&pair, depth, &operations(), &mut Vec::new(), &mut visited);
    visited
}

fn conf(text: &str) -> Config {
    parse(text, TorchVersion::REFERENCE).expect("a string that PyTorch accepts").config
}

#[test]
fn all_sequences_of_six_operations_keep_every_invariant() {
    let visited = search(Config::default(), None, 6);
    assert!(visited.sequences > 100_000, "{visited:?}");
    assert!(visited.ooms > 1000 && visited.retries > 1000, "{visited:?}");
}

#[test]
fn all_sequences_of_five_operations_under_other_settings_keep_every_invariant() {
    for (text, limit) in [
        ("expandable_segments:True", None),
        ("max_split_size_mb:20", None),
        ("roundup_power2_divisions:2", Some(30)),
        ("garbage_collection_threshold:0.5", Some(31)),
    ] {
        let visited = search(conf(text), limit, 5);
        assert!(visited.sequences > 10_000, "{text}: {visited:?}");
        assert!(visited.ooms > 100, "{text}: {visited:?}");
    }
}

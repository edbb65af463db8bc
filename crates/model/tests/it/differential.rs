//! The model against a second allocator that was written from the specification in the most literal
//! way: after every operation of random programs, everything that can be seen must be equal.

use proptest::prelude::*;
use vramwise_model::PoolOptions;
use vramwise_model::settings::{Config, ROUNDUP_BUCKETS};
use vramwise_testkit::Rng;
use vramwise_testkit::allocator::lockstep::{Lockstep, Start};
use vramwise_testkit::allocator::program::{Op, random_edge};
use vramwise_testkit::allocator::simulate::simulate;
use vramwise_types::TorchVersion;

const MIB: u64 = 1 << 20;

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0u64..4096,
        3 => 1u64..2 * MIB,
        3 => 1u64..24 * MIB,
        2 => (1u64..200).prop_map(|mib| mib * MIB),
        3 => any::<u64>().prop_map(|seed| random_edge(&mut Rng::new(seed))),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let divisions = prop_oneof![
        2 => Just([0; ROUNDUP_BUCKETS]),
        1 => prop::sample::select(vec![1, 2, 4, 16]).prop_map(|d| [d; ROUNDUP_BUCKETS]),
        1 => prop::array::uniform16(prop::sample::select(vec![0, 1, 2, 8])),
    ];
    let large = prop_oneof![3 => Just(20), 1 => prop::sample::select(vec![11u64, 32, 64])];
    let split = prop_oneof![1 => Just(None), 1 => (0u64..120).prop_map(Some)];
    let rounding = prop_oneof![2 => Just(0), 1 => 0u64..60];
    let collect = prop_oneof![2 => Just(0.0), 1 => 0.01f64..0.99];
    let fraction = prop_oneof![1 => Just(1.0), 1 => 0.1f64..1.0];
    (large, split, rounding, divisions, collect, fraction, any::<bool>()).prop_map(
        |(large, split, rounding, divisions, collect, fraction, expandable)| Config {
            large_segment_size: large * MIB,
            max_split_size: split.map_or(u64::MAX, |mib| (large + mib) * MIB),
            max_non_split_rounding: (large + rounding) * MIB,
            roundup_power2_divisions: divisions,
            garbage_collection_threshold: collect,
            per_process_memory_fraction: fraction,
            expandable_segments: expandable,
            ..Config::default()
        },
    )
}

fn start() -> impl Strategy<Value = Start> {
    let minor = prop::sample::select(vec![11, 10, 8, 12]);
    (config(), minor, 20u64..600, any::<u64>()).prop_map(|(config, minor, mib, placement)| Start {
        config,
        version: TorchVersion::new(2, minor),
        total: mib * MIB,
        placement,
    })
}

fn options() -> impl Strategy<Value = PoolOptions> {
    any::<[bool; 3]>().prop_map(|[no_split, use_on_oom, own_allocator]| PoolOptions {
        no_split,
        use_on_oom,
        own_allocator,
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => (size(), 0u8..4, 0u8..2)
            .prop_map(|(size, stream, thread)| Op::Malloc { size, stream, thread }),
        30 => (0u32..64).prop_map(|pick| Op::Free { pick }),
        2 => (0u32..64).prop_map(|pick| Op::FreePending { pick }),
        2 => (0u32..64).prop_map(|pick| Op::Complete { pick }),
        4 => (0u32..64, 0u8..4).prop_map(|(pick, stream)| Op::RecordStream { pick, stream }),
        3 => (0u8..4, 1u8..4).prop_map(|(stream, count)| Op::PassEvents { stream, count }),
        1 => Just(Op::ProcessEvents),
        3 => Just(Op::EmptyCache),
        1 => prop::option::of(1u16..700).prop_map(|mib| Op::SetLimit { mib }),
        1 => (0u8..101).prop_map(|hundredths| Op::SetFraction { hundredths }),
        1 => config().prop_map(|config| Op::SetConfig(Box::new(config))),
        2 => options().prop_map(Op::CreatePool),
        3 => (0u8..8, 0u8..4, any::<bool>())
            .prop_map(|(pool, thread, capture)| Op::BeginRoute { pool, thread, capture }),
        3 => (0u8..8).prop_map(|pick| Op::EndRoute { pick }),
        1 => (0u8..8).prop_map(|pool| Op::ReleasePool { pool }),
        1 => (0u8..8).prop_map(|pool| Op::DestroyPool { pool }),
        1 => Just(Op::ResetPeak),
        1 => Just(Op::ResetAccumulated),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn model_and_reference_agree_after_every_operation(
        start in start(),
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut pair = Lockstep::new(start);
        for (i, op) in ops.iter().enumerate() {
            if let Err(what) = pair.step(op, true) {
                prop_assert!(false, "operation {i}, {op:?}: {what}");
            }
        }
        if let Err(what) = pair.wind_down() {
            prop_assert!(false, "at the end: {what}");
        }
    }
}

/// Branches of the specification that a simulation of this length must meet, so that agreement means
/// something.
const RARE: [&str; 32] = [
    "an oversize block cannot be released",
    "completed after events",
    "default pool kept under routing",
    "deferred free completed without events",
    "expandable block used without mapping",
    "free block grown",
    "free deferred",
    "garbage collection found nothing",
    "garbage collection in one pass",
    "garbage collection in several passes",
    "lookup preferred a block with less reach",
    "lookup refused an oversize block",
    "lookup refused too much rounding",
    "lookup skipped an expandable block",
    "mapping refused by the device",
    "merged on both sides",
    "no whole granule to unmap",
    "not split because exactly 1 MiB would remain",
    "not split in a no-split pool",
    "out of memory",
    "oversize request served from the cache",
    "refused by the device",
    "refused by the limit",
    "released enough oversize blocks",
    "released one oversize block",
    "released oversize blocks, but too little",
    "reservation dropped",
    "retry granted",
    "served by an overflow pool",
    "several events for one block",
    "split of a split block",
    "unmapped with leftovers",
];

#[test]
fn a_seeded_simulation_agrees_and_meets_every_rare_rule() {
    let summary = simulate(2026, 150_000, 1).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(summary.steps, 150_000);
    for branch in RARE {
        let times = summary.branches.get(branch).copied().unwrap_or(0);
        assert!(times > 0, "the simulation never met: {branch}\n{summary}");
    }
}

#[test]
fn the_same_seed_gives_the_same_simulation() {
    let run = |seed| simulate(seed, 5_000, 50).expect("model and reference agree");
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

//! The consequences that specification §2 and §3.1 draw from the lookup and split rules.

use vramwise_model::stats::Family;
use vramwise_model::{PoolIndex, StreamIndex};

use crate::world::{MIB, world};

#[test]
fn the_smallest_sufficient_block_wins_and_among_equals_the_lowest() {
    let mut w = world("");
    let blocks = [40, 32, 32, 50].map(|mib| w.alloc(mib * MIB));
    for block in [blocks[3], blocks[2], blocks[0], blocks[1]] {
        w.free(block);
    }
    assert_eq!(w.allocator.ties(), 0);
    let got = [31, 31, 31, 31].map(|mib| w.alloc(mib * MIB));
    let places = got.map(|b| w.place(b));
    assert_eq!(places, ["S1+0/32M", "S2+0/32M", "S0+0/31M", "S3+0/31M"]);
    assert_eq!(w.allocator.ties(), 1);
}

#[test]
fn only_one_candidate_is_examined() {
    // 150 fails rule 5 for 130, so 149.5 would have to be looked at before; but best fit saw all smaller.
    let mut w = world("max_split_size_mb:100");
    w.touch(150 * MIB);
    assert_eq!(w.allocator.miss_size(PoolIndex::DEFAULT, 140 * MIB, StreamIndex::DEFAULT), None);
    let miss = w.allocator.miss_size(PoolIndex::DEFAULT, 130 * MIB, StreamIndex::DEFAULT);
    assert_eq!(miss, Some(130 * MIB));
    let just = w.allocator.miss_size(PoolIndex::DEFAULT, 130 * MIB + 1, StreamIndex::DEFAULT);
    assert_eq!(just, None);
}

#[test]
fn exactly_max_split_size_is_oversize_already() {
    let mut w = world("max_split_size_mb:100");
    w.touch(100 * MIB);
    assert_eq!(w.allocator.stats().oversize_allocations.allocated, 1);
    assert_eq!(w.allocator.stats().oversize_segments.allocated, 1);
    // A smaller request must not touch it, the same request may.
    let small = w.alloc(99 * MIB);
    assert_eq!(w.place(small), "S1+0/100M");
    let same = w.alloc(100 * MIB);
    assert_eq!(w.place(same), "S0+0/100M");
}

#[test]
fn without_max_split_size_rounding_never_refuses() {
    let mut w = world("max_non_split_rounding_mb:20");
    w.touch(900 * MIB);
    let block = w.alloc(2 * MIB);
    assert_eq!(w.place(block), "S0+0/2M");
}

#[test]
fn a_block_of_the_small_pool_is_split_to_the_last_512_bytes() {
    let mut w = world("");
    w.alloc(1_048_064);
    w.alloc(1_048_064);
    assert_eq!(w.layout("S0"), "0/1048064 · 1048064/1048064 · free 2096128/1024");
    w.alloc(512);
    assert_eq!(w.layout("S0"), "0/1048064 · 1048064/1048064 · 2096128/512 · free 2096640/512");
}

#[test]
fn blocks_that_wait_for_events_are_not_merged_and_absorb_nothing() {
    let mut w = world("");
    w.allocator.device_mut().inner_mut().hold_events();
    let s2 = w.allocator.stream(2);
    let [a, b, c] = [w.alloc(1000), w.alloc(1000), w.alloc(1000)];
    w.allocator.record_stream(b, s2);
    w.free(b);
    w.free(a);
    w.free(c);
    assert_eq!(w.layout("S0"), "free 0/1024 · pending 1024/1024 · free 2048/2095104");
    assert_eq!(w.current(Family::InactiveSplit), 2);
    w.allocator.device_mut().inner_mut().complete_events();
    w.process_events();
    assert_eq!(w.layout("S0"), "free 0/2M");
    assert_eq!(w.current(Family::InactiveSplit), 0);
}

//! The consequences that specification §2 and §3.1 draw from the lookup and split rules.

use vramwise_model::device::{FallingPlacement, SimDevice};
use vramwise_model::settings::Config;
use vramwise_model::stats::Family;
use vramwise_model::{Allocator, NoHistory, PoolIndex, StreamIndex, ThreadId};

use vramwise_types::TorchVersion;

use crate::world::{GIB, MIB, World, world};

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

/// Where a request of 32 MiB goes that two free blocks of that size could serve, which `make` leaves.
fn chosen(minor: u16, make: impl Fn(&mut World)) -> String {
    let mut w = World::new("", GIB, TorchVersion::new(2, minor));
    make(&mut w);
    let block = w.alloc(32 * MIB);
    w.place(block)
}

#[test]
fn from_2_12_on_a_segment_that_came_later_comes_later_whatever_its_address() {
    let is_the_older_taken = |minor: u16| {
        let version = TorchVersion::new(2, minor);
        let device = SimDevice::new(GIB, FallingPlacement::default());
        let mut allocator = Allocator::new(Config::default(), version, device);
        let (thread, stream) = (ThreadId(0), StreamIndex::DEFAULT);
        let alloc = |a: &mut Allocator<_>, mib: u64| {
            a.malloc(mib * MIB, stream, thread, &mut NoHistory).expect("there is memory")
        };
        let [older, younger] = [32, 32].map(|mib| alloc(&mut allocator, mib));
        let address = allocator.address(older);
        allocator.free(older, &mut NoHistory);
        allocator.free(younger, &mut NoHistory);
        let taken = alloc(&mut allocator, 32);
        allocator.address(taken) == address
    };
    let older_taken = [11, 12, 13, 15].map(is_the_older_taken);
    assert_eq!(older_taken, [false, true, true, true]);
}

#[test]
fn in_2_12_alone_what_was_cut_off_first_comes_last_even_inside_a_segment() {
    // The block of the whole segment is at its end: what was cut off in front of it is newer.
    let two_in_one_segment = |w: &mut World| {
        w.touch(96 * MIB);
        let [first, _second, whole] = [32, 32, 32].map(|mib| w.alloc(mib * MIB));
        w.free(first);
        w.free(whole);
    };
    let places = [11, 12, 13, 15].map(|minor| chosen(minor, two_in_one_segment));
    assert_eq!(places, ["S0+0/32M", "S0+64M/32M", "S0+0/32M", "S0+0/32M"]);
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

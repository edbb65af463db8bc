//! Worked examples W19–W22, W27 and W28 of specification §13: expandable segments.

use vramwise_model::stats::Family::*;
use vramwise_model::{PoolIndex, StreamIndex};
use vramwise_types::TorchVersion;

use crate::world::{MIB, World, quadruple, world};

const EXPANDABLE: &str = "expandable_segments:True";

#[test]
fn w19_expandable_segments_grow_in_place() {
    let mut w = world(EXPANDABLE);
    // (a), (b)
    let a = w.alloc(1000);
    assert_eq!(w.device_calls(), ["reserve 1152M", "map E+0 2M"]);
    assert_eq!(1152 * MIB, 1_207_959_552);
    assert_eq!(w.place(a), "E+0/1024");
    assert_eq!(w.numbers()[3], 1);
    assert_eq!(w.all(Segment), (0, 0, 0, 0));
    let b = w.alloc(3 * MIB);
    assert_eq!(w.device_calls(), ["reserve 1160M", "map L+0 20M"]);
    assert_eq!(1160 * MIB, 1_216_348_160);
    assert_eq!(w.layout("L"), "0/3M · free 3M/17M");
    // (c)
    w.entries();
    let c = w.alloc(18 * MIB);
    assert_eq!(w.entries(), ["segment_map L+20M 20M", "alloc L+3M 18M"]);
    assert_eq!(w.layout("L"), "0/3M · 3M/18M · free 21M/19M");
    assert_eq!(w.current(ReservedBytes), 44_040_192);
    // (d)
    let d = w.alloc(50 * MIB);
    assert_eq!(w.place(d), "L+21M/50M");
    assert_eq!(w.entries(), ["segment_map L+40M 40M", "alloc L+21M 50M"]);
    assert_eq!(w.layout("L"), "0/3M · 3M/18M · 21M/50M · free 71M/9M");
    // (e)
    let e = [w.alloc(MIB), w.alloc(MIB)];
    assert_eq!(e.map(|block| w.place(block)), ["E+1024/1M", "E+1049600/1M"]);
    assert_eq!(w.entries(), ["alloc E+1024 1M", "segment_map E+2M 2M", "alloc E+1049600 1M"]);
    assert_eq!(w.numbers()[3], 5);
    // (f)
    w.free(c);
    w.empty_cache();
    assert_eq!(w.numbers()[2..], [1, 5, 0]);
    // (g)
    let g = w.alloc(10 * MIB);
    assert_eq!(w.place(g), "L+3M/10M");
    assert_eq!(w.layout("L"), "0/3M · 3M/10M · free 13M/8M · 21M/50M · free 71M/9M");
    // (h)
    w.entries();
    let h = w.alloc(30 * MIB);
    assert_eq!(w.entries(), ["segment_map L+80M 40M", "alloc L+71M 30M"]);
    assert_eq!(w.layout("L"), "0/3M · 3M/10M · free 13M/8M · 21M/50M · 71M/30M · free 101M/19M");
    assert_eq!(w.numbers()[3], 6);
    // (i)
    for block in [a, b, d, e[0], e[1], g, h] {
        w.free(block);
    }
    w.entries();
    w.device_calls();
    w.empty_cache();
    assert_eq!(w.entries(), ["segment_unmap L+0 120M", "segment_unmap E+0 4M"]);
    assert_eq!(w.device_calls(), ["unmap L+0 120M", "drop L", "unmap E+0 4M", "drop E"]);
    assert_eq!(w.numbers()[4], 2);
    assert_eq!(w.allocator.device().reservations(), 0);
    for family in [Segment, InactiveSplit, InactiveSplitBytes] {
        assert_eq!(w.all(family), (0, 0, 0, 0), "{family:?} does not count expandable memory");
    }
}

#[test]
fn w20_max_split_size_refuses_the_lookup_but_not_the_expandable_path() {
    let mut w = world("expandable_segments:True,max_split_size_mb:100");
    w.touch(150 * MIB);
    assert_eq!(w.device_calls(), ["reserve 1160M", "map L+0 160M"]);
    assert_eq!(quadruple(w.allocator.stats().oversize_allocations), (0, 1, 1, 1));
    w.entries();
    w.alloc(50 * MIB);
    assert_eq!(w.entries(), ["alloc L+0 50M"]);
    assert_eq!(w.layout("L"), "0/50M · free 50M/110M");
    assert_eq!(w.numbers()[3], 1);
    w.alloc(120 * MIB);
    assert_eq!(w.entries(), ["segment_map L+160M 20M", "alloc L+50M 120M"]);
    assert_eq!(w.layout("L"), "0/50M · 50M/120M · free 170M/10M");
    assert_eq!(quadruple(w.allocator.stats().oversize_segments), (0, 0, 0, 0));
}

#[test]
fn w21_whole_granules_inside_a_hole_are_unmapped_and_mapped_again() {
    let mut w = world(EXPANDABLE);
    let [_, b, _] = [3, 50, 3].map(|mib| w.alloc(mib * MIB));
    assert_eq!(w.layout("L"), "0/3M · 3M/50M · 53M/3M · free 56M/4M");
    w.free(b);
    w.entries();
    w.empty_cache();
    assert_eq!(w.entries(), ["segment_unmap L+20M 20M"]);
    assert_eq!(w.numbers()[4], 1);
    assert_eq!(w.segments(), ["L", "L+40M"]);
    let [head, tail] = [w.segment("L"), w.segment("L+40M")];
    assert_eq!((head.size, tail.size), (20 * MIB, 20 * MIB));
    assert_eq!(w.layout("L"), "0/3M · free 3M/17M · free 40M/13M · 53M/3M · free 56M/4M");
    let requested = |s: &vramwise_model::SegmentView| -> Vec<u64> {
        s.blocks.iter().map(|b| b.requested).collect()
    };
    assert_eq!(requested(&head), [3 * MIB, 0]);
    assert_eq!(requested(&tail), [0, 3 * MIB, 0]);

    let d = w.alloc(30 * MIB);
    assert_eq!(w.entries(), ["segment_map L+20M 20M", "alloc L+3M 30M"]);
    assert_eq!(w.place(d), "L+3M/30M");
    assert_eq!(w.layout("L"), "0/3M · 3M/30M · free 33M/20M · 53M/3M · free 56M/4M");
    let e = w.alloc(14 * MIB);
    assert_eq!(w.place(e), "L+33M/14M");
    assert_eq!(w.layout("L"), "0/3M · 3M/30M · 33M/14M · free 47M/6M · 53M/3M · free 56M/4M");
}

#[test]
fn w22_a_failed_map_flushes_and_a_failed_growth_tries_a_new_reservation() {
    let mut w = World::new(EXPANDABLE, 100 * MIB, TorchVersion::REFERENCE);
    let [a, _] = [30, 30].map(|mib| w.alloc(mib * MIB));
    assert_eq!(w.device_calls(), ["reserve 120M", "map L+0 40M", "map L+40M 20M"]);
    assert_eq!(120 * MIB, 125_829_120);
    w.free(a);
    let c = w.alloc(50 * MIB);
    assert_eq!(w.device_calls(), ["map L+60M 60M refused", "unmap L+0 20M", "map L+60M 60M"]);
    assert_eq!(w.place(c), "L+60M/50M");
    assert_eq!(w.layout("L"), "free 20M/10M · 30M/30M · 60M/50M · free 110M/10M");
    assert_eq!(w.segments(), ["L+20M"]);
    assert_eq!(w.numbers(), [1, 0, 1, 3, 1]);
    assert_eq!(w.allocator.reserved_bytes(), 100 * MIB);

    w.entries();
    w.try_alloc(60 * MIB).expect_err("80 of 100 MiB are in use");
    assert_eq!(w.device_calls(), ["reserve 120M", "map L′+0 60M refused", "map L′+0 60M refused"]);
    assert_eq!(w.entries(), ["oom 60M, device_free 0"]);
    assert_eq!(w.current(AllocatedBytes), (80 * MIB) as i64);
    assert_eq!(w.current(ReservedBytes) - w.current(AllocatedBytes), (20 * MIB) as i64);
}

#[test]
fn w27_the_large_segment_is_also_the_granule_of_expandable_memory() {
    let mut w = world("large_segment_size_mb:64,expandable_segments:True");
    w.alloc(2 * MIB);
    w.alloc(12 * MIB);
    assert_eq!(w.layout("L"), "0/2M · 2M/12M · free 14M/50M");
    w.entries();
    w.alloc(63 * MIB);
    assert_eq!(w.entries(), ["segment_map L+64M 64M", "alloc L+14M 63M"]);
    assert_eq!(w.layout("L"), "0/2M · 2M/12M · 14M/63M · free 77M/51M");
}

/// W28: an expandable and an ordinary free block of 13 MiB each, the former with room to grow.
fn two_free_blocks() -> World {
    let mut w = world(EXPANDABLE);
    w.alloc(7 * MIB);
    w.set_conf("expandable_segments:False");
    w.alloc(7 * MIB);
    assert_eq!(w.layout("L"), "0/7M · free 7M/13M");
    assert_eq!(w.layout("S0"), "0/7M · free 7M/13M");
    assert_eq!(13 * MIB, 13_631_488);
    assert!(w.segment("L").addr < w.segment("S0").addr, "the expandable one sorts first");
    w
}

#[test]
fn w28_with_the_option_off_expandable_blocks_are_passed_over() {
    let mut w = two_free_blocks();
    let block = w.alloc(2 * MIB);
    assert_eq!(w.place(block), "S0+7M/2M");
}

#[test]
fn w28_with_the_option_on_the_block_with_the_smaller_reach_wins() {
    let mut w = two_free_blocks();
    w.set_conf(EXPANDABLE);
    let block = w.alloc(2 * MIB);
    assert_eq!(w.place(block), "S0+7M/2M");
    // 12 MiB no longer fit there.
    let block = w.alloc(12 * MIB);
    assert_eq!(w.place(block), "L+7M/12M");
}

#[test]
fn a_hole_that_fits_is_preferred_to_the_end_that_can_grow() {
    let mut w = world(EXPANDABLE);
    let [hole, _] = [10, 2].map(|mib| w.alloc(mib * MIB));
    w.free(hole);
    // The end is smaller (8 MiB), but could grow over the whole reservation.
    assert_eq!(w.layout("L"), "free 0/10M · 10M/2M · free 12M/8M");
    let block = w.alloc(6 * MIB);
    assert_eq!(w.place(block), "L+0/6M");
}

#[test]
fn pieces_mapped_before_a_failure_stay_cached() {
    let mut w = World::new(EXPANDABLE, 100 * MIB, TorchVersion::REFERENCE);
    w.alloc(100);
    let [a, b] = [20, 30].map(|mib| w.alloc(mib * MIB));
    w.free(a);
    w.empty_cache();
    w.free(b);
    assert_eq!(w.layout("L"), "free 20M/40M");
    w.entries();
    w.device_calls();
    // As under routing, so that no flush follows: the hole is mapped, the end cannot be.
    let result = w.act(|a, history| {
        a.malloc_from(PoolIndex::DEFAULT, 90 * MIB, StreamIndex::DEFAULT, true, history)
    });
    result.expect_err("62 of 100 MiB are held");
    assert_eq!(w.device_calls(), ["map L+0 20M", "map L+60M 40M refused"]);
    assert_eq!(w.entries(), ["segment_map L+0 20M", "oom 90M, device_free 38M"]);
    assert_eq!(w.layout("L"), "free 0/60M");
}

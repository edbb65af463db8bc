//! Worked examples W1–W8, W11–W13 and W27 of specification §13: ordinary segments, no limits.

use vramwise_model::BlockId;
use vramwise_model::stats::Family::*;

use crate::world::{MIB, World, world};

/// W1: three small blocks.
fn small_packing() -> (World, [BlockId; 3]) {
    let mut w = world("");
    let blocks = [1, 1000, 1_048_576].map(|bytes| w.alloc(bytes));
    (w, blocks)
}

#[test]
fn w1_small_requests_are_packed_into_one_segment_of_2_mib() {
    let (mut w, _) = small_packing();
    assert!(w.segment("S0").small);
    assert_eq!(w.segment("S0").size, 2_097_152);
    assert_eq!(w.layout("S0"), "0/512 · 512/1024 · 1536/1M · free 1050112/1047040");
    assert_eq!(w.all(Allocation), (3, 3, 3, 0));
    assert_eq!(w.all(AllocatedBytes), (1_050_112, 1_050_112, 1_050_112, 0));
    assert_eq!(w.current(RequestedBytes), 1_049_577);
    assert_eq!(w.current(ReservedBytes), 2_097_152);
    assert_eq!(w.all(Segment), (1, 1, 1, 0));
    assert_eq!(w.all(InactiveSplit), (1, 1, 1, 0));
    assert_eq!(w.all(InactiveSplitBytes), (1_047_040, 2_096_640, 2_096_640, 1_049_600));
    assert_eq!(
        w.entries(),
        ["segment_alloc S0 2M", "alloc S0+0 1", "alloc S0+512 1000", "alloc S0+1536 1M"]
    );
    // What was never handed out was never requested.
    assert_eq!(w.segment("S0").blocks.map_requested(), [1, 1000, 1_048_576, 0]);
}

#[test]
fn w2_a_mebibyte_that_does_not_fit_the_rest_opens_a_second_segment() {
    let (mut w, _) = small_packing();
    w.alloc(1_048_576);
    assert_eq!(w.layout("S1"), "0/1M · free 1M/1M");
}

/// W3: after W2, one large block.
fn with_a_large_block() -> (World, [BlockId; 5]) {
    let (mut w, [a, b, c]) = small_packing();
    let d = w.alloc(1_048_576);
    let e = w.alloc(1_048_577);
    (w, [a, b, c, d, e])
}

#[test]
fn w3_one_byte_more_than_a_mebibyte_goes_to_the_large_pool() {
    let (w, _) = with_a_large_block();
    assert!(!w.segment("S2").small);
    assert_eq!(w.layout("S2"), "0/1049088 · free 1049088/19922432");
    assert_eq!(w.current(AllocatedBytes), 3_147_776);
    assert_eq!(w.current(ReservedBytes), 25_165_824);
    assert_eq!(w.current(InactiveSplit), 3);
    assert_eq!(w.current(InactiveSplitBytes), 22_018_048);
    assert_eq!(w.small(InactiveSplitBytes).0, 2_095_616);
    assert_eq!(w.large(InactiveSplitBytes).0, 19_922_432);
}

/// W4: after W3, all small blocks freed.
fn merged() -> (World, BlockId) {
    let (mut w, [a, b, c, d, e]) = with_a_large_block();
    w.free(b);
    assert_eq!(w.current(InactiveSplit), 4);
    assert_eq!(w.current(InactiveSplitBytes), 22_019_072);
    w.free(a);
    assert_eq!(w.layout("S0"), "free 0/1536 · 1536/1M · free 1050112/1047040");
    assert_eq!(w.current(InactiveSplit), 4);
    assert_eq!(w.all(InactiveSplitBytes), (22_019_584, 22_019_584, 23_069_184, 1_049_600));
    w.free(c);
    w.free(d);
    (w, e)
}

#[test]
fn w4_freed_neighbours_merge_until_the_segment_is_whole() {
    let (w, _) = merged();
    assert_eq!(w.layout("S0"), "free 0/2M");
    assert_eq!(w.layout("S1"), "free 0/2M");
    assert_eq!(w.current(InactiveSplit), 1);
    assert_eq!(w.current(InactiveSplitBytes), 19_922_432);
    assert_eq!(w.current(Active), 1);
    assert_eq!(w.current(Segment), 3);
    // The block freed last survives the merge, and with it the size of its last request.
    assert_eq!(w.segment("S0").blocks.map_requested(), [1_048_576]);
}

#[test]
fn w5_empty_cache_returns_whole_segments_only() {
    let (mut w, last) = merged();
    w.entries();
    w.empty_cache();
    assert_eq!(w.entries(), ["segment_free S0 2M", "segment_free S1 2M"]);
    assert_eq!(w.all(Segment), (1, 3, 3, 2));
    assert_eq!(w.all(ReservedBytes), (20_971_520, 25_165_824, 25_165_824, 4_194_304));
    assert_eq!(w.numbers(), [0, 0, 1, 3, 2]);
    assert_eq!(w.segments(), ["S2"]);
    w.free(last);
    w.empty_cache();
    assert_eq!(w.numbers(), [0, 0, 2, 3, 3]);
    for family in [
        Allocation,
        Segment,
        Active,
        InactiveSplit,
        AllocatedBytes,
        ReservedBytes,
        ActiveBytes,
        InactiveSplitBytes,
        RequestedBytes,
    ] {
        assert_eq!(w.current(family), 0, "{family:?}");
    }
}

#[test]
fn w6_from_10_mib_on_the_device_is_asked_for_the_rounded_size() {
    let mut w = world("");
    w.alloc(10_485_248);
    assert_eq!(w.segment("S0").size, 20 * MIB);
    assert_eq!(w.layout("S0"), "0/10485248 · free 10485248/10486272");
    for request in [10_485_249, 10_485_760] {
        let mut w = world("");
        w.alloc(request);
        assert_eq!(w.layout("S0"), "0/10M");
    }
}

#[test]
fn w7_a_remainder_of_exactly_1_mib_is_not_split_off() {
    for (request, layout) in [
        (10_485_761, "0/10486272 · free 10486272/2096640"),
        (11_533_824, "0/11533824 · free 11533824/1049088"),
        (11_534_336, "0/12M"),
        (12_058_624, "0/12M"),
    ] {
        let mut w = world("");
        w.alloc(request);
        assert_eq!(w.layout("S0"), layout);
        assert_eq!(w.segment("S0").size, 12 * MIB);
    }
    let mut w = world("");
    w.alloc(11_534_336);
    assert_eq!(w.current(AllocatedBytes), 12_582_912);
    for (request, layout) in
        [(19 * MIB, "0/20M"), (19 * MIB - 512, "0/19922432 · free 19922432/1049088")]
    {
        let mut w = world("");
        w.touch(2 * MIB);
        assert_eq!(w.layout("S0"), "free 0/20M");
        w.alloc(request);
        assert_eq!(w.layout("S0"), layout);
    }
}

#[test]
fn w8_best_fit_takes_the_smallest_block_that_suffices() {
    let mut w = world("");
    let [a, b, c] = [32, 64, 32].map(|mib| w.alloc(mib * MIB));
    for block in [a, c, b] {
        w.free(block);
    }
    let first = w.alloc(30 * MIB);
    assert_eq!(w.place(first), "S0+0/30M");
    assert_eq!(w.layout("S0"), "0/30M · free 30M/2M");
    let second = w.alloc(31 * MIB + 1);
    assert_eq!(w.place(second), "S2+0/32M");
    assert_eq!(w.allocator.block_size(second), 33_554_432);
    let third = w.alloc(33 * MIB);
    assert_eq!(w.place(third), "S1+0/33M");
    assert_eq!(w.layout("S1"), "0/33M · free 33M/31M");
    assert_eq!(w.current(AllocatedBytes), 99_614_720);
    assert_eq!(w.current(ReservedBytes), 134_217_728);
    assert_eq!(w.large(InactiveSplit).0, 2);
    assert_eq!(w.large(InactiveSplitBytes).0, 34_603_008);
}

#[test]
fn w11_a_cached_block_serves_only_its_own_stream() {
    let mut w = world("");
    w.touch(1000);
    let x = w.allocator.stream(0x5555);
    let elsewhere = w.alloc_on(x, 1000);
    assert_eq!(w.place(elsewhere), "S1+0/1024");
    let here = w.alloc(1000);
    assert_eq!(w.place(here), "S0+0/1024");
    let entries = w.entries();
    assert_eq!(
        entries[4..],
        ["segment_alloc S1 2M on 1", "alloc S1+0 1000 on 1", "alloc S0+0 1000"]
    );
}

#[test]
fn w12_an_exact_fit_leaves_nothing_to_split() {
    let mut w = world("");
    w.alloc(1_048_064);
    w.alloc(1_048_576);
    assert_eq!(w.layout("S0"), "0/1048064 · 1048064/1M · free 2096640/512");
    assert_eq!(w.small(InactiveSplit).0, 1);
    w.alloc(512);
    assert_eq!(w.layout("S0"), "0/1048064 · 1048064/1M · 2096640/512");
    assert_eq!(w.small(InactiveSplit).0, 0);
    assert_eq!(w.small(InactiveSplitBytes).0, 0);
}

#[test]
fn w13_best_fit_in_the_small_pool_and_three_pieces_that_merge() {
    let mut w = world("");
    let blocks = [0; 4].map(|_| w.alloc(600 << 10));
    assert_eq!(w.layout("S0"), "0/614400 · 614400/614400 · 1228800/614400 · free 1843200/253952");
    assert_eq!(w.layout("S1"), "0/614400 · free 614400/1482752");
    w.free(blocks[0]);
    w.free(blocks[2]);
    assert_eq!(w.layout("S0"), "free 0/614400 · 614400/614400 · free 1228800/868352");
    w.alloc(500 << 10);
    assert_eq!(
        w.layout("S0"),
        "0/512000 · free 512000/102400 · 614400/614400 · free 1228800/868352"
    );
    w.free(blocks[1]);
    assert_eq!(w.layout("S0"), "0/512000 · free 512000/1585152");
}

#[test]
fn w27_the_large_segment_can_be_larger() {
    let mut w = world("large_segment_size_mb:64");
    w.alloc(2 * MIB);
    assert_eq!(w.layout("S0"), "0/2M · free 2M/62M");
    w.alloc(12 * MIB);
    assert_eq!(w.layout("S0"), "0/2M · 2M/12M · free 14M/50M");
    w.alloc(63 * MIB);
    assert_eq!(w.layout("S1"), "0/64M");
}

trait Requested {
    fn map_requested(&self) -> Vec<u64>;
}

impl Requested for Vec<vramwise_model::BlockView> {
    fn map_requested(&self) -> Vec<u64> {
        self.iter().map(|b| b.requested).collect()
    }
}

//! Settings that change while memory is held (specification §3.1, §4.4, §6.4, §7.1, §9.3).

use vramwise_types::TorchVersion;

use crate::world::{MIB, World, quadruple, world};

/// 130 MiB free behind 20 MiB in use, and a card of 200 MiB.
fn with_a_large_remainder() -> World {
    let mut w = World::new("", 200 * MIB, TorchVersion::REFERENCE);
    w.touch(150 * MIB);
    w.alloc(20 * MIB);
    w.set_conf("max_split_size_mb:100");
    w
}

#[test]
fn a_piece_of_a_segment_never_goes_back_although_it_became_oversize() {
    // 105 MiB: the remainder suffices, but is refused as too large (§2.2 rule 5). 140 MiB: it does not
    // suffice, and the walk downwards meets it.
    for request in [105, 140] {
        let mut w = with_a_large_remainder();
        w.try_alloc(request * MIB).expect_err("the card is full");
        assert_eq!(w.layout("S0"), "0/20M · free 20M/130M");
    }
}

#[test]
fn whole_segments_go_back_although_a_piece_stands_before_them() {
    let mut w = World::new("", 400 * MIB, TorchVersion::REFERENCE);
    w.touch(150 * MIB);
    w.alloc(20 * MIB);
    let whole = w.alloc(140 * MIB);
    w.free(whole);
    w.set_conf("max_split_size_mb:100");
    w.entries();
    w.alloc(180 * MIB);
    assert_eq!(w.entries(), ["segment_free S1 140M", "segment_alloc S2 180M", "alloc S2+0 180M"]);
}

#[test]
fn with_expandable_segments_switched_on_ordinary_blocks_are_split_to_512_bytes() {
    let mut w = world("");
    w.touch(2 * MIB);
    w.set_conf("expandable_segments:True");
    let block = w.alloc(20 * MIB - 512);
    assert_eq!(w.place(block), "S0+0/20971008");
    assert_eq!(w.layout("S0"), "0/20971008 · free 20971008/512");
}

#[test]
fn the_max_split_size_counter_keeps_the_value_of_the_start() {
    let mut w = world("max_split_size_mb:100");
    w.set_conf("max_split_size_mb:200");
    assert_eq!(w.allocator.stats().max_split_size, 100 << 20);
    w.set_conf("");
    assert_eq!(w.allocator.stats().max_split_size, 100 << 20);
    assert_eq!(world("").allocator.stats().max_split_size, -1);
}

#[test]
fn oversize_counters_drift_when_max_split_size_changes() {
    let mut w = world("max_split_size_mb:100");
    let block = w.alloc(120 * MIB);
    w.set_conf("max_split_size_mb:200");
    w.free(block);
    w.empty_cache();
    assert_eq!(quadruple(w.allocator.stats().oversize_allocations), (1, 1, 1, 0));
    assert_eq!(quadruple(w.allocator.stats().oversize_segments), (1, 1, 1, 0));
}

#[test]
fn a_fraction_set_with_other_options_at_run_time_does_not_move_the_limit() {
    let mut w = world("per_process_memory_fraction:0.5");
    w.set_conf("per_process_memory_fraction:0.25");
    assert_eq!(w.allocator.limit(), Some(512 << 20));
}

#[test]
fn expandable_memory_is_freed_and_unmapped_after_the_option_was_switched_off() {
    let mut w = world("expandable_segments:True");
    let block = w.alloc(3 * MIB);
    w.set_conf("expandable_segments:False");
    w.free(block);
    w.entries();
    w.empty_cache();
    assert_eq!(w.entries(), ["segment_unmap L+0 20M"]);
    assert_eq!(w.allocator.reserved_bytes(), 0);
}

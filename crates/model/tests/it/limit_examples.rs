//! Worked examples W9, W10 and W14–W16 of specification §13: oversize blocks, a full card, a limit,
//! garbage collection.

use vramwise_model::MallocError;
use vramwise_model::stats::Family::*;
use vramwise_types::TorchVersion;

use crate::world::{GIB, MIB, World, quadruple, world};

#[test]
fn w9_oversize_blocks_serve_only_requests_of_nearly_their_size() {
    let mut w = world("max_split_size_mb:100");
    w.touch(50 * MIB);
    w.touch(150 * MIB);
    let oversize = |w: &World| {
        let stats = w.allocator.stats();
        (quadruple(stats.oversize_allocations), quadruple(stats.oversize_segments))
    };
    assert_eq!(oversize(&w), ((0, 1, 1, 1), (1, 1, 1, 0)));

    let sixty = w.alloc(60 * MIB);
    assert_eq!(w.place(sixty), "S2+0/60M");
    let before = w.current(AllocatedBytes);
    let block = w.alloc(140 * MIB);
    assert_eq!(w.place(block), "S1+0/150M");
    assert_eq!(w.current(AllocatedBytes) - before, 157_286_400);
    w.free(block);
    for (request, place) in
        [(130 * MIB, "S3+0/130M"), (129 * MIB, "S3+0/130M"), (100 * MIB, "S4+0/100M")]
    {
        let block = w.alloc(request);
        assert_eq!(w.place(block), place);
        w.free(block);
    }
    assert_eq!(w.allocator.stats().oversize_segments.current, 3);

    let allocations = w.allocator.stats().oversize_allocations.allocated;
    let block = w.alloc(99 * MIB);
    assert_eq!(w.place(block), "S5+0/100M");
    assert_eq!(w.layout("S5"), "0/100M");
    assert_eq!(w.allocator.stats().oversize_allocations.allocated, allocations + 1);
    w.free(block);
    let block = w.alloc(20 * MIB);
    assert_eq!(w.place(block), "S0+0/20M");
    assert_eq!(w.layout("S0"), "0/20M · free 20M/30M");
    assert_eq!(w.allocator.stats().max_split_size, 104_857_600);
}

#[test]
fn w10_oversize_blocks_are_released_from_the_largest_down_before_a_flush() {
    let mut w = world("max_split_size_mb:100");
    let blocks = [110, 120, 130, 200, 300].map(|mib| w.alloc(mib * MIB));
    for block in &blocks[..4] {
        w.free(*block);
    }
    w.entries();
    w.device_calls();
    let wide = w.alloc(250 * MIB);
    assert_eq!(w.device_calls(), ["malloc 250M refused", "free S3", "free S2", "malloc 250M"]);
    assert_eq!(
        w.entries(),
        [
            "segment_free S3 200M",
            "segment_free S2 130M",
            "segment_alloc S5 250M",
            "alloc S5+0 250M"
        ]
    );
    assert_eq!(w.numbers(), [0, 0, 0, 6, 2]);

    w.free(wide);
    w.free(blocks[4]);
    let sixty = w.alloc(60 * MIB);
    w.alloc(60 * MIB);
    w.free(sixty);
    w.device_calls();
    w.alloc(450 * MIB);
    assert_eq!(w.device_calls(), ["malloc 450M refused", "free S4", "free S5", "malloc 450M"]);
    // 110, 120 and 60 MiB stay cached.
    assert_eq!(w.segments(), ["S0", "S1", "S6", "S7", "S8"]);
    assert_eq!(
        [w.layout("S0"), w.layout("S1"), w.layout("S6")],
        ["free 0/110M", "free 0/120M", "free 0/60M"]
    );
    assert_eq!(w.numbers()[..3], [0, 0, 0]);
}

#[test]
fn released_oversize_blocks_stay_released_when_they_were_too_little() {
    let mut w = world("max_split_size_mb:100");
    let blocks = [110, 120, 700].map(|mib| w.alloc(mib * MIB));
    w.free(blocks[0]);
    w.free(blocks[1]);
    w.entries();
    w.try_alloc(400 * MIB).expect_err("700 of 1024 MiB are in use");
    assert_eq!(
        w.entries(),
        ["segment_free S1 120M", "segment_free S0 110M", "oom 400M, device_free 324M"]
    );
    assert_eq!(w.numbers(), [1, 1, 1, 3, 2]);
}

#[test]
fn oversize_blocks_must_sum_up_to_the_rounded_size_not_to_the_segment_size() {
    // Odd large segments let the two differ: 14 + 11 MiB are enough for 24.5, not for its segment of 26.
    let conf = "large_segment_size_mb:11,max_split_size_mb:11";
    let mut w = World::new(conf, 40 * MIB, TorchVersion::REFERENCE);
    w.touch(14 * MIB);
    w.touch(2 * MIB);
    w.device_calls();
    w.alloc(24 * MIB + MIB / 2);
    assert_eq!(w.device_calls(), ["malloc 26M refused", "free S0", "free S1", "malloc 26M"]);
    assert_eq!(w.numbers()[..3], [0, 0, 0]);
}

#[test]
fn w14_a_failing_device_call_flushes_the_cache_and_is_tried_once_more() {
    let mut w = world("");
    let a = w.alloc(400 * MIB);
    w.alloc(400 * MIB);
    w.free(a);
    w.alloc(100);
    w.device_calls();
    w.alloc(500 * MIB);
    assert_eq!(w.device_calls(), ["malloc 500M refused", "free S0", "malloc 500M"]);
    assert_eq!(w.numbers(), [1, 0, 1, 4, 1]);
    assert_eq!(w.current(ReservedBytes), 945_815_552);

    w.entries();
    let error = w.try_alloc(600 * MIB).expect_err("900 of 1024 MiB are in use");
    // "Tried to allocate 600.00 MiB", in two attempts.
    let (requested, segment) = (600 * MIB, 600 * MIB);
    assert_eq!(error, MallocError::OutOfMemory { requested, segment });
    assert_eq!(w.device_calls(), ["malloc 600M refused", "malloc 600M refused"]);
    assert_eq!(w.entries(), ["oom 600M, device_free 122M"]);
    assert_eq!((600 * MIB, 122 * MIB), (629_145_600, 127_926_272));
    assert_eq!(w.numbers(), [2, 1, 2, 4, 1]);
    // "900.00 MiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated."
    assert_eq!(w.current(AllocatedBytes), (900 * MIB + 512) as i64);
    assert_eq!(w.current(ReservedBytes) - w.current(AllocatedBytes), (2 * MIB - 512) as i64);
}

#[test]
fn w15_the_limit_refuses_without_asking_the_device() {
    let mut w = world("per_process_memory_fraction:0.1");
    assert_eq!(w.allocator.limit(), Some(107_374_182));
    w.touch(60 * MIB);
    w.alloc(50 * MIB);
    assert_eq!(w.layout("S0"), "0/50M · free 50M/10M");
    w.entries();
    w.device_calls();
    let error = w.try_alloc(45 * MIB).expect_err("60 + 46 MiB are above the limit");
    // "Tried to allocate 46.00 MiB", "50.00 MiB is allocated", "10.00 MiB is reserved but unallocated".
    let (requested, segment) = (45 * MIB, 46 * MIB);
    assert_eq!(error, MallocError::OutOfMemory { requested, segment });
    assert_eq!(w.current(AllocatedBytes), (50 * MIB) as i64);
    assert_eq!(w.current(ReservedBytes), (60 * MIB) as i64);
    assert!(w.device_calls().is_empty());
    assert_eq!(w.entries(), ["oom 45M, device_free 964M"]);
    assert_eq!(45 * MIB, 47_185_920);
    assert_eq!(w.numbers(), [1, 1, 1, 1, 0]);
}

const COLLECTING: &str = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5";

/// Three cached blocks of 100, 102 and 104 MiB.
fn three_cached(w: &mut World) {
    let blocks = [100, 102, 104].map(|mib| w.alloc(mib * MIB));
    for block in blocks {
        w.free(block);
    }
}

#[test]
fn w16_garbage_collection_frees_what_went_unused_longest() {
    let mut w = world(COLLECTING);
    three_cached(&mut w);
    for _ in 0..3 {
        w.touch(100 * MIB);
    }
    w.alloc(40 * MIB);
    assert_eq!(w.layout("S0"), "0/40M · free 40M/60M");
    w.entries();
    w.alloc(150 * MIB);
    assert_eq!(
        w.entries(),
        [
            "segment_free S1 102M",
            "segment_free S2 104M",
            "segment_alloc S3 150M",
            "alloc S3+0 150M"
        ]
    );
    assert_eq!(w.allocator.reserved_bytes(), 250 * MIB);
    // No waiting, no retry: only the two frees.
    assert_eq!(w.numbers(), [0, 0, 0, 4, 2]);
}

#[test]
fn w16_garbage_collection_keeps_blocks_younger_than_the_average() {
    let mut w = world(COLLECTING);
    three_cached(&mut w);
    for _ in 0..4 {
        let block = w.alloc(103 * MIB);
        assert_eq!(w.place(block), "S2+0/104M");
        w.free(block);
    }
    w.entries();
    w.alloc(150 * MIB);
    assert_eq!(
        w.entries(),
        [
            "segment_free S0 100M",
            "segment_free S1 102M",
            "segment_alloc S3 150M",
            "alloc S3+0 150M"
        ]
    );
    assert_eq!(w.allocator.reserved_bytes(), 266_338_304);
}

#[test]
fn garbage_collection_without_a_limit_does_nothing() {
    let mut w = world("garbage_collection_threshold:0.1");
    three_cached(&mut w);
    w.touch(150 * MIB);
    w.touch(152 * MIB);
    assert_eq!(w.numbers()[4], 0);
    assert_eq!(w.allocator.reserved_bytes(), (100 + 102 + 104 + 150 + 152) * MIB);
}

#[test]
fn a_pass_of_garbage_collection_is_not_cut_short_when_it_has_enough() {
    let mut w = world("garbage_collection_threshold:0.5");
    w.allocator.set_limit(Some(GIB / 2));
    let blocks = [90, 92, 94].map(|mib| w.alloc(mib * MIB));
    for block in blocks {
        w.free(block);
    }
    w.entries();
    // 276 MiB are held, 256 allowed: one block would do, but all three have the average age.
    w.alloc(100 * MIB);
    assert_eq!(
        w.entries(),
        [
            "segment_free S0 90M",
            "segment_free S1 92M",
            "segment_free S2 94M",
            "segment_alloc S3 100M",
            "alloc S3+0 100M"
        ]
    );
}

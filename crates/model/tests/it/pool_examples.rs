//! Worked examples W23–W26 of specification §13 and the hazard of §6.7: private pools.

use vramwise_model::stats::Family::*;
use vramwise_model::{
    BlockId, BlockState, Filter, MallocError, PoolIndex, PoolOptions, StreamIndex, ThreadId,
};
use vramwise_types::TorchVersion;

use crate::world::{GIB, MIB, World, world};

const MAIN: ThreadId = ThreadId(0);

fn mem_pool(w: &mut World) -> PoolIndex {
    w.allocator.create_pool(PoolOptions::default())
}

/// `with torch.cuda.use_mem_pool(pool)`.
fn inside<R>(w: &mut World, pool: PoolIndex, body: impl FnOnce(&mut World) -> R) -> R {
    w.allocator.begin_route(pool, Filter::Thread(MAIN));
    let result = body(w);
    w.allocator.end_route(pool);
    w.allocator.release_pool(pool);
    result
}

fn destroy(w: &mut World, pool: PoolIndex) {
    w.act(|a, history| a.destroy_pool(pool, history));
}

#[test]
fn w23_a_mem_pool_has_its_own_segments_and_keeps_them_until_it_goes() {
    let mut w = world("");
    w.alloc(5 * MIB);
    let pool = mem_pool(&mut w);
    let block = inside(&mut w, pool, |w| w.alloc(5 * MIB));
    assert_eq!(w.place(block), "S1+0/5M");
    assert_eq!(w.segment("S1").size, 20 * MIB);
    assert_eq!(w.segment("S1").pool, PoolIndex(1));
    assert_eq!(w.segment("S0").pool, PoolIndex::DEFAULT);
    w.free(block);
    w.empty_cache();
    assert_eq!(w.segments(), ["S0", "S1"]);
    let before = w.numbers()[2];
    w.entries();
    destroy(&mut w, pool);
    assert_eq!(w.entries(), ["segment_free S1 20M"]);
    assert_eq!(w.numbers()[2], before + 1);
}

#[test]
fn w23_inside_use_mem_pool_the_pool_has_a_second_user() {
    let mut w = world("");
    let pool = mem_pool(&mut w);
    w.allocator.begin_route(pool, Filter::Thread(MAIN));
    let block = w.alloc(5 * MIB);
    w.free(block);
    // The object goes, but the routing still holds the pool.
    destroy(&mut w, pool);
    assert_eq!(w.segments(), ["S0"]);
    w.allocator.end_route(pool);
    w.empty_cache();
    assert_eq!(w.segments(), ["S0"]);
    w.allocator.release_pool(pool);
    w.empty_cache();
    assert!(w.segments().is_empty());
}

#[test]
fn w23_a_no_split_pool_hands_out_whole_segments() {
    let mut w = world("");
    let pool = w.allocator.create_pool(PoolOptions { no_split: true, ..PoolOptions::default() });
    inside(&mut w, pool, |w| {
        let blocks = [w.alloc(5 * MIB), w.alloc(100)];
        assert_eq!(blocks.map(|b| w.place(b)), ["S0+0/20M", "S1+0/2M"]);
    });
    assert_eq!(w.current(AllocatedBytes), 23_068_672);
    assert_eq!(w.current(RequestedBytes), 5_242_980);
    assert_eq!(w.all(InactiveSplit), (0, 0, 0, 0));
}

#[test]
fn segments_with_live_blocks_outlive_their_mem_pool_until_an_empty_cache() {
    let mut w = world("");
    let pool = mem_pool(&mut w);
    let block = inside(&mut w, pool, |w| w.alloc(5 * MIB));
    destroy(&mut w, pool);
    assert_eq!(w.segments(), ["S0"]);
    w.free(block);
    assert_eq!(w.segments(), ["S0"]);
    w.empty_cache();
    assert!(w.segments().is_empty());
}

/// W24: 400 MiB free in an overflow pool, 300 MiB and 2 MiB free in the default pool.
fn with_an_overflow_pool(version: TorchVersion) -> World {
    let mut w = World::new("", GIB, version);
    let options = PoolOptions { use_on_oom: true, ..PoolOptions::default() };
    let pool = w.allocator.create_pool(options);
    inside(&mut w, pool, |w| w.touch(400 * MIB));
    w.touch(300 * MIB);
    w.touch(100);
    w.entries();
    w.device_calls();
    w
}

#[test]
fn w24_an_overflow_pool_serves_before_the_cache_is_released() {
    let mut w = with_an_overflow_pool(TorchVersion::REFERENCE);
    let block = w.alloc(350 * MIB);
    assert_eq!(w.place(block), "S0+0/350M");
    assert_eq!(w.layout("S0"), "0/350M · free 350M/50M");
    assert_eq!(w.layout("S1"), "free 0/300M");
    assert_eq!(w.entries(), ["alloc S0+0 350M"]);
    assert_eq!(w.device_calls(), ["malloc 350M refused"]);
    assert_eq!(w.numbers()[0], 0);
    // The block is the overflow pool's and returns to it.
    w.free(block);
    assert_eq!(w.layout("S0"), "free 0/400M");
    assert_eq!(w.segment("S0").pool, PoolIndex(1));
}

#[test]
fn w24_before_2_11_an_overflow_pool_is_the_last_resort() {
    let mut w = with_an_overflow_pool(TorchVersion::new(2, 10));
    let block = w.alloc(350 * MIB);
    assert_eq!(w.place(block), "S3+0/350M");
    assert_eq!(w.layout("S0"), "free 0/400M");
    assert_eq!(w.device_calls(), ["malloc 350M refused", "free S1", "free S2", "malloc 350M"]);
    assert_eq!(w.numbers()[0], 1);
    // Where even the flush does not help, the pool serves.
    let block = w.alloc(390 * MIB);
    assert_eq!(w.place(block), "S0+0/390M");
}

/// The C library of a pluggable allocator is not part of the model; its limit is a device that refuses
/// above 100 MiB while the driver says that there is room. The OOM text belongs to other crates; its
/// numbers are added up here.
#[test]
fn w25_a_pool_with_its_own_allocator_asks_it_for_whole_segments() {
    let mut w = world("expandable_segments:True");
    w.allocator.device_mut().set_ceiling(Some(100 * MIB));
    let pool =
        w.allocator.create_pool(PoolOptions { own_allocator: true, ..PoolOptions::default() });
    inside(&mut w, pool, |w| {
        w.alloc(1000);
        w.alloc(5 * MIB);
        assert_eq!(w.device_calls(), ["malloc 2M", "malloc 20M"]);
        assert_eq!((2 * MIB, 20 * MIB, 200 * MIB), (2_097_152, 20_971_520, 209_715_200));
        assert_eq!(w.current(ReservedBytes), 23_068_672);
        assert_eq!(w.current(Segment), 2);
        let error = w.try_alloc(200 * MIB).expect_err("the library gives 100 MiB");
        let (requested, segment) = (200 * MIB, 200 * MIB);
        assert_eq!(error, MallocError::OutOfMemory { requested, segment });
        // At once: routing is under way, so nothing is flushed and nothing tried again.
        assert_eq!(w.device_calls(), ["malloc 200M refused"]);
    });
    assert_eq!(w.numbers()[..2], [0, 1]);
    // "22.00 MiB is allocated by PyTorch, with 17.00 MiB allocated in private pools", 0 unallocated.
    let blocks = w.allocator.segments().into_iter().flat_map(|s| s.blocks);
    let cached: u64 = blocks.filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum();
    assert_eq!(cached, 17 * MIB - 1024);
    assert_eq!(w.current(AllocatedBytes) + cached as i64, (22 * MIB) as i64);
}

/// W26: x and y of 4096 bytes in S0, x used on another stream; then routing to a pool begins.
fn routed(w: &mut World) -> (PoolIndex, [BlockId; 2]) {
    let s2 = w.allocator.stream(2);
    let blocks = [w.alloc(4096), w.alloc(4096)];
    w.allocator.record_stream(blocks[0], s2);
    let pool = mem_pool(w);
    w.allocator.begin_route(pool, Filter::Thread(MAIN));
    w.entries();
    (pool, blocks)
}

#[test]
fn w26_under_routing_a_free_with_uses_is_deferred_and_others_complete() {
    let mut w = world("");
    let (pool, [x, y]) = routed(&mut w);
    let z = w.alloc(4096);
    assert_eq!(w.place(z), "S1+0/4096");
    assert_eq!(w.segment("S1").pool, pool);
    w.entries();
    w.free(x);
    w.free(y);
    assert_eq!(
        w.entries(),
        ["free_requested S0+0 4096", "free_requested S0+4096 4096", "free_completed S0+4096 4096"]
    );
    assert_eq!(w.layout("S0"), "pending 0/4096 · free 4096/2093056");
    w.empty_cache();
    assert!(w.entries().is_empty());
    assert_eq!(w.numbers()[2], 0);
    w.allocator.end_route(pool);
    let again = w.alloc(4096);
    assert_eq!(w.place(again), "S0+0/4096");
    assert_eq!(w.entries(), ["free_completed S0+0 4096", "alloc S0+0 4096"]);
}

#[test]
fn uses_recorded_during_routing_are_dropped_when_it_ends() {
    let mut w = world("");
    w.allocator.device_mut().inner_mut().hold_events();
    let (pool, [x, y]) = routed(&mut w);
    let s2 = w.allocator.stream(2);
    w.allocator.record_stream(y, s2);
    w.free(x);
    w.free(y);
    w.allocator.end_route(pool);
    w.entries();
    w.process_events();
    // x was used before and waits for its event, y was used during routing only.
    assert_eq!(w.entries(), ["free_completed S0+4096 4096"]);
    assert_eq!(w.layout("S0"), "pending 0/4096 · free 4096/2093056");
}

#[test]
fn destroying_a_pool_settles_the_frees_that_routing_deferred() {
    let mut w = world("");
    let s2 = w.allocator.stream(2);
    let pool = mem_pool(&mut w);
    inside(&mut w, pool, |w| {
        let x = w.alloc(4096);
        w.allocator.record_stream(x, s2);
        w.free(x);
    });
    assert_eq!(w.layout("S0"), "pending 0/4096 · free 4096/2093056");
    w.entries();
    destroy(&mut w, pool);
    assert_eq!(w.entries(), ["free_completed S0+0 4096", "segment_free S0 2M"]);
}

#[test]
fn a_miss_under_routing_never_flushes() {
    let mut w = world("");
    w.touch(600 * MIB);
    let pool = mem_pool(&mut w);
    w.device_calls();
    inside(&mut w, pool, |w| {
        w.try_alloc(500 * MIB).expect_err("600 MiB are cached");
    });
    assert_eq!(w.device_calls(), ["malloc 500M refused"]);
    assert_eq!(w.numbers()[..3], [0, 1, 0]);
}

#[test]
fn routing_of_one_thread_suspends_event_queries_of_all() {
    let mut w = world("");
    let (_, [x, _]) = routed(&mut w);
    w.free(x);
    w.thread = ThreadId(7);
    let other = w.alloc(4096);
    // The other thread is not routed, but its malloc does not complete x.
    assert_eq!(w.place(other), "S0+8192/4096");
    assert_eq!(w.layout("S0"), "pending 0/4096 · 4096/4096 · 8192/4096 · free 12288/2084864");
}

#[test]
fn the_last_begun_routing_wins_and_before_2_11_the_first() {
    for (minor, pool) in [(11, 2), (10, 1)] {
        let mut w = World::new("", GIB, TorchVersion::new(2, minor));
        let pools = [mem_pool(&mut w), mem_pool(&mut w)];
        for pool in pools {
            w.allocator.begin_route(pool, Filter::Thread(MAIN));
        }
        w.alloc(100);
        assert_eq!(w.segment("S0").pool, PoolIndex(pool), "2.{minor}");
    }
}

#[test]
fn a_capture_routes_its_streams_and_no_others() {
    let mut w = world("");
    let capturing = w.allocator.stream(0x77);
    let pool = mem_pool(&mut w);
    w.allocator.begin_route(pool, Filter::Streams(vec![capturing]));
    w.alloc_on(capturing, 100);
    w.alloc_on(StreamIndex::DEFAULT, 100);
    assert_eq!(w.segment("S0").pool, pool);
    assert_eq!(w.segment("S1").pool, PoolIndex::DEFAULT);
}

#[test]
fn empty_cache_releases_the_default_pool_large_first_and_private_pools_small_first() {
    let mut w = world("");
    let pool = mem_pool(&mut w);
    inside(&mut w, pool, |w| {
        w.touch(5 * MIB);
        w.touch(100);
    });
    w.touch(100);
    w.touch(5 * MIB);
    w.allocator.release_pool(pool);
    w.entries();
    w.empty_cache();
    assert_eq!(
        w.entries(),
        ["segment_free S3 20M", "segment_free S2 2M", "segment_free S1 2M", "segment_free S0 20M"]
    );
    assert_eq!(w.numbers()[2], 1);
}

#[test]
fn a_private_pool_with_expandable_segments_can_be_lost_while_it_holds_memory() {
    let mut w = world("expandable_segments:True");
    let pool = mem_pool(&mut w);
    let first = inside(&mut w, pool, |w| {
        w.touch(200 * MIB);
        w.device_calls();
        let blocks = [70, 60, 70].map(|mib| w.alloc(mib * MIB));
        assert!(w.device_calls().is_empty(), "all served from the cache");
        blocks[0]
    });
    w.free(first);
    assert_eq!(w.allocator.lost_pools(), 0);
    destroy(&mut w, pool);
    assert_eq!(w.device_calls(), ["unmap L+0 60M"]);
    assert_eq!(w.allocator.lost_pools(), 1);
    assert_eq!(w.current(AllocatedBytes), (130 * MIB) as i64);
}

#[test]
fn ordinary_segments_that_went_back_do_not_keep_an_expandable_pool_from_being_lost() {
    let mut w = world("");
    let pool = mem_pool(&mut w);
    inside(&mut w, pool, |w| w.touch(5 * MIB));
    w.allocator.set_freeable(pool, true);
    w.empty_cache();
    w.allocator.set_freeable(pool, false);
    w.set_conf("expandable_segments:True");
    let first = inside(&mut w, pool, |w| {
        w.touch(200 * MIB);
        [70, 60, 70].map(|mib| w.alloc(mib * MIB))[0]
    });
    w.free(first);
    destroy(&mut w, pool);
    assert_eq!(w.allocator.lost_pools(), 1);
}

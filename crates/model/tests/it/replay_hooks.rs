//! What a replay uses beyond a program's own calls: looks ahead that change nothing, and releases whose
//! scope is known.

use vramwise_model::settings::Config;
use vramwise_model::{Filter, PoolIndex, PoolOptions, Scope, StreamIndex, ThreadId};
use vramwise_testkit::Rng;
use vramwise_testkit::allocator::lockstep::{Lockstep, Start};
use vramwise_testkit::allocator::program::{Generator, Op, Traits};
use vramwise_testkit::allocator::settings::random_config;
use vramwise_types::Action;

use crate::world::{MIB, World, world};

/// Runs programs that only a limit ever refuses, and shows the state before and after each malloc.
fn each_malloc(mut look: impl FnMut(&Lockstep, (u64, StreamIndex), &mut dyn FnMut() -> Lockstep)) {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let config = Config { per_process_memory_fraction: 1.0, ..random_config(&mut rng) };
        let start = Start { config, total: 1 << 40, placement: seed, ..Start::default() };
        let mut pair = Lockstep::new(start);
        pair.step(&Op::SetLimit { mib: Some(200) }, true).expect("nothing is held");
        let mut generator = Generator::new(rng, Traits::default(), 400 << 20);
        for _ in 0..400 {
            let op = generator.draw(pair.live());
            let before = pair.clone();
            pair.step(&op, false).expect("model and reference agree");
            if let Op::Malloc { size, .. } = op {
                look(&before, (size, StreamIndex::DEFAULT), &mut || pair.clone());
            }
        }
    }
}

#[test]
fn a_malloc_that_returns_memory_was_said_to_be_able_to() {
    let (mut released, mut kept) = (0, 0);
    each_malloc(|before, (size, stream), after| {
        let could = before.model().could_release(PoolIndex::DEFAULT, size, stream);
        let after = after();
        if after.entries().iter().any(|e| e.action.is_release()) {
            released += 1;
            assert!(could, "{size} bytes: {:?}", after.entries());
        } else if !could {
            kept += 1;
        }
    });
    assert!(released > 100 && kept > 1000, "{released} released, {kept} could not");
}

#[test]
fn a_malloc_asks_the_device_exactly_for_what_its_miss_was_said_to_need() {
    let (mut hits, mut misses) = (0, 0);
    each_malloc(|before, (size, stream), after| {
        let miss = before.model().miss_size(PoolIndex::DEFAULT, size, stream);
        let after = after();
        let grown = after.entries().iter().find(|e| e.action == Action::SegmentAlloc);
        match miss {
            None => {
                hits += 1;
                assert!(after.entries().iter().all(|e| e.action == Action::Alloc));
            }
            Some(segment) => {
                misses += 1;
                assert!(grown.is_none_or(|e| e.size == segment));
            }
        }
    });
    assert!(hits > 1000 && misses > 1000, "{hits} hits, {misses} misses");
}

/// A free segment of 5 MiB requests in the default pool (S0) and in two pools without users (S1, S2).
fn three_pools() -> (World, [PoolIndex; 2]) {
    let mut w = world("");
    w.touch(5 * MIB);
    let pools = [0; 2].map(|_| {
        let pool = w.allocator.create_pool(PoolOptions::default());
        w.allocator.begin_route(pool, Filter::Thread(ThreadId(0)));
        w.touch(5 * MIB);
        w.allocator.end_route(pool);
        w.allocator.set_freeable(pool, true);
        pool
    });
    w.entries();
    (w, pools)
}

#[test]
fn a_release_of_known_scope_covers_these_pools_in_this_order() {
    let released = |scope: fn([PoolIndex; 2]) -> Scope| {
        let (mut w, pools) = three_pools();
        let scope = scope(pools);
        w.act(|a, history| a.release_cached(&scope, history));
        (w.entries(), w.numbers()[2])
    };
    let segments = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("segment_free {name} 20M")).collect()
    };
    assert_eq!(released(|_| Scope::everything()), (segments(&["S0", "S1", "S2"]), 1));
    assert_eq!(released(|_| Scope::exactly(true, vec![])), (segments(&["S0"]), 1));
    let reversed = released(|[a, b]| Scope::exactly(true, vec![b, a]));
    assert_eq!(reversed, (segments(&["S0", "S2", "S1"]), 1));
    assert_eq!(released(|[_, b]| Scope::pool(b)), (segments(&["S2"]), 1));
}

#[test]
fn a_pool_that_is_said_to_have_users_is_kept() {
    let (mut w, [a, _]) = three_pools();
    w.allocator.set_freeable(a, false);
    w.empty_cache();
    assert_eq!(w.entries(), ["segment_free S0 20M", "segment_free S2 20M"]);
    // The default pool has no users to lose.
    w.allocator.set_freeable(PoolIndex::DEFAULT, true);
    w.act(|a, history| a.destroy_pool(PoolIndex(2), history));
    assert_eq!(w.segments(), ["S1"]);
}

#[test]
fn pending_frees_complete_in_the_order_that_a_recording_shows() {
    let mut w = world("");
    let blocks = [0; 3].map(|_| w.alloc(512));
    for block in blocks {
        w.act(|a, history| a.free_pending(block, history));
    }
    w.allocator.order_pending(&[blocks[2], blocks[0]]);
    w.entries();
    w.empty_cache();
    let entries = w.entries();
    assert_eq!(
        entries[..3],
        ["free_completed S0+1024 512", "free_completed S0+0 512", "free_completed S0+512 512"]
    );
}

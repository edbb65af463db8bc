//! Starting from a snapshot in mid-run.

use vramwise_model::device::Device;
use vramwise_model::settings::Config;
use vramwise_model::{Allocator, PoolOptions, StreamIndex};
use vramwise_testkit::allocator::device::{TestDevice, test_device};
use vramwise_types::TorchVersion;

use crate::laws::{FAMILIES, Run, runs};
use crate::world::{MIB, World};

/// A second allocator that starts from the snapshot of the first.
fn restored<D: Device>(model: &Allocator<D>) -> Allocator<TestDevice> {
    let device = test_device(model.device().total_bytes(), 0);
    let version = TorchVersion::REFERENCE;
    let mut copy = Allocator::new(Config::default(), version, device);
    let streams = model.segments().iter().map(|s| s.stream.0).max().unwrap_or(0);
    for index in 0..=streams {
        copy.stream(model.stream_handle(StreamIndex(index)));
    }
    for _ in 1..model.pool_count() {
        copy.create_pool(PoolOptions::default());
    }
    copy.restore(&model.segments());
    copy
}

#[test]
fn an_allocator_restored_from_a_snapshot_shows_the_same_snapshot() {
    for Run { pair, .. } in runs() {
        let copy = restored(pair.model());
        assert_eq!(copy.segments(), pair.model().segments());
        copy.check().expect("invariants hold");
        for family in FAMILIES {
            let [was, is] = [pair.model().stats(), copy.stats()].map(|s| s.all(family).current);
            assert_eq!(was, is, "{family:?}");
        }
    }
}

#[test]
fn a_restored_reservation_whose_head_is_unmapped_ends_before_the_next_one() {
    let mut w = World::new("expandable_segments:True", 100 * MIB, TorchVersion::REFERENCE);
    let [head, _] = [w.alloc(30 * MIB), w.alloc(30 * MIB)];
    let other = w.allocator.stream(7);
    w.alloc_on(other, 5 * MIB);
    w.free(head);
    w.empty_cache();
    // The second reservation begins 128 MiB behind the first, whose first 20 MiB are not to be seen.
    assert_eq!(w.segments(), ["L+20M", "L′"]);
    assert_eq!(w.segment("L′").addr - w.segment("L+20M").addr, 108 * MIB);
    let copy = restored(&w.allocator);
    copy.check().expect("no block lies in two reservations");
    assert_eq!(copy.segments(), w.allocator.segments());
}

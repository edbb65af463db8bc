//! Numbers of specification §1 and §4.3.

use vramwise_model::MallocError;
use vramwise_model::settings::parse;
use vramwise_model::size::{round_size, segment_size};
use vramwise_types::TorchVersion;

use crate::world::{GIB, MIB, World, world};

fn rounded(conf: &str, requests: &[u64]) -> Vec<u64> {
    let config = parse(conf, TorchVersion::REFERENCE).expect("accepted").config;
    requests.iter().map(|r| round_size(&config, *r)).collect()
}

#[test]
fn requests_below_512_bytes_take_512() {
    assert_eq!(rounded("", &[1, 511, 512, 513, 1024]), [512, 512, 512, 1024, 1024]);
}

#[test]
fn zero_bytes_are_a_null_pointer_and_leave_no_trace() {
    let mut w = world("");
    let block = w.alloc(0);
    assert_eq!(block, vramwise_model::BlockId::NULL);
    assert_eq!((w.allocator.address(block), w.allocator.block_size(block)), (0, 0));
    w.free(block);
    w.act(|a, _| {
        let other = a.stream(9);
        a.record_stream(block, other);
    });
    assert!(w.entries().is_empty());
    assert_eq!(w.numbers(), [0; 5]);
}

#[test]
fn two_to_the_sixtieth_bytes_are_refused_before_anything_else() {
    let mut w = world("");
    assert_eq!(w.try_alloc(1 << 60), Err(MallocError::TooLarge(1 << 60)));
    assert_eq!(w.try_alloc(u64::MAX), Err(MallocError::TooLarge(u64::MAX)));
    assert!(w.entries().is_empty());
    assert_eq!(w.numbers(), [0; 5]);
    let oom = MallocError::OutOfMemory { requested: (1 << 60) - 1, segment: 1 << 60 };
    assert_eq!(w.try_alloc((1 << 60) - 1), Err(oom));
    assert_eq!(w.numbers()[1], 1);
}

#[test]
fn power_of_two_divisions_round_as_observed() {
    let cases = [
        (1025, 1536),
        (1200, 1536),
        (2048, 2048),
        (2049, 2560),
        (5000, 5120),
        (100_000, 114_688),
        (1_048_577, 1_310_720),
        (3 * MIB + 1, 3_670_016),
        (100 * MIB, 117_440_512),
        (130 * MIB, 160 * MIB),
        (200 * MIB, 224 * MIB),
        (300 * MIB, 320 * MIB),
        (600 * MIB, 640 * MIB),
        (1100 * MIB, 1280 * MIB),
        (3000 * MIB, 3072 * MIB),
    ];
    let (requests, want): (Vec<u64>, Vec<u64>) = cases.into_iter().unzip();
    assert_eq!(rounded("roundup_power2_divisions:4", &requests), want);
    let plain = rounded("", &requests);
    assert_eq!(rounded("roundup_power2_divisions:1", &requests), plain);
}

#[test]
fn divisions_are_looked_up_by_the_unrounded_size() {
    // 2 MiB − 1 belongs to the bucket below 2 MiB, which has no divisions here.
    let conf = "roundup_power2_divisions:[1:0,2:4,>:4]";
    assert_eq!(rounded(conf, &[2 * MIB - 1, 2 * MIB + 1]), [2 * MIB, 2_621_440]);
}

#[test]
fn w17_division_lists_round_each_size_class_by_its_own_entry() {
    let conf = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
    assert_eq!(
        rounded(conf, &[300 * MIB, 600 * MIB, 1100 * MIB, 3000 * MIB]),
        [300 * MIB, 805_306_368, 1280 * MIB, 3_221_225_472]
    );
}

#[test]
fn w17_a_rounded_request_takes_the_rounded_block() {
    let mut w = World::new("roundup_power2_divisions:4", 4 * GIB, TorchVersion::REFERENCE);
    let block = w.alloc(100 * MIB);
    assert_eq!(w.place(block), "S0+0/112M");
    assert_eq!(w.entries(), ["segment_alloc S0 112M", "alloc S0+0 100M"]);
}

#[test]
fn the_device_is_asked_by_the_rounded_size() {
    let asked = |conf: &str, request| {
        let config = parse(conf, TorchVersion::REFERENCE).expect("accepted").config;
        segment_size(&config, round_size(&config, request))
    };
    assert_eq!(asked("", 100), 2 * MIB);
    assert_eq!(asked("", MIB), 2 * MIB);
    assert_eq!(asked("", MIB + 1), 20 * MIB);
    assert_eq!(asked("", 10_485_248), 20 * MIB);
    assert_eq!(asked("", 10_485_249), 10 * MIB);
    assert_eq!(asked("", 45 * MIB), 46 * MIB);
    assert_eq!(asked("large_segment_size_mb:64", 9 * MIB), 64 * MIB);
    assert_eq!(asked("large_segment_size_mb:64", 12 * MIB), 12 * MIB);
}

#[test]
fn the_allowed_bytes_are_the_truncated_fraction_of_the_card() {
    let mut w = world("");
    w.allocator.set_memory_fraction(0.1);
    assert_eq!(w.allocator.limit(), Some(107_374_182));
    let read_back = 107_374_182_f64 / GIB as f64;
    assert_eq!(read_back.to_string(), "0.09999999962747097");
    w.allocator.set_memory_fraction(1.0);
    assert_eq!(w.allocator.limit(), None);
    w.allocator.set_memory_fraction(0.0);
    assert_eq!(w.allocator.limit(), Some(0));
    let from_conf = world("per_process_memory_fraction:0.5");
    assert_eq!(from_conf.allocator.limit(), Some(512 * MIB));
}

#[test]
fn a_request_that_meets_the_limit_exactly_is_granted() {
    let mut w = world("");
    w.allocator.set_limit(Some(40 * MIB));
    w.alloc(20 * MIB);
    w.alloc(20 * MIB);
    w.try_alloc(1).expect_err("40 MiB are held already");
    // An expandable request is tested with its segment size although it would map a whole granule.
    let mut w = world("expandable_segments:True");
    w.allocator.set_limit(Some(10 * MIB));
    w.alloc(10 * MIB);
    assert_eq!(w.allocator.reserved_bytes(), 20 * MIB);
    w.try_alloc(11 * MIB).expect_err("20 MiB are held, 10 allowed");
}

//! Laws of conservation over random programs: what the history, the counters, the device and the
//! snapshot say about the same run must agree.

use std::collections::BTreeMap;

use vramwise_model::stats::{Family, Stat};
use vramwise_model::{BlockState, Entry};
use vramwise_testkit::Rng;
use vramwise_testkit::allocator::lockstep::{Lockstep, Start};
use vramwise_testkit::allocator::program::{Generator, Op, Traits};
use vramwise_testkit::allocator::settings::random_config;
use vramwise_types::Action;

/// A random run without resets: the allocator at its end and the whole history.
pub(crate) struct Run {
    pub(crate) pair: Lockstep,
    history: Vec<Entry>,
}

fn run(seed: u64, steps: u64) -> Run {
    let mut rng = Rng::new(seed);
    let start = Start {
        config: random_config(&mut rng),
        total: 300 << 20,
        placement: seed,
        ..Start::default()
    };
    let traits =
        Traits { several_streams: true, pools: seed.is_multiple_of(2), changes: true, told: true };
    let mut generator = Generator::new(rng, traits, start.total);
    let mut run = Run { pair: Lockstep::new(start), history: Vec::new() };
    for _ in 0..steps {
        let op = generator.draw(run.pair.live());
        if !matches!(op, Op::ResetPeak | Op::ResetAccumulated) {
            run.pair.step(&op, false).expect("model and reference agree");
            run.history.extend_from_slice(run.pair.entries());
        }
    }
    run
}

pub(crate) fn runs() -> impl Iterator<Item = Run> {
    (0..40).map(|seed| run(seed, 500))
}

/// What a program that knows only the history can say of the end.
#[derive(Default)]
struct Rebuilt {
    /// Requested bytes of blocks not yet free, by address.
    active: BTreeMap<u64, u64>,
    allocated: BTreeMap<u64, u64>,
    /// Bytes of ordinary segments, by address.
    segments: BTreeMap<u64, u64>,
    /// Mapped ranges of expandable memory.
    mapped: BTreeMap<u64, u64>,
}

impl Rebuilt {
    fn take(&mut self, entry: &Entry) {
        let Entry { action, addr, size, .. } = *entry;
        match action {
            Action::Alloc => {
                assert_eq!(self.active.insert(addr, size), None, "{addr:#x} is in use");
                assert_eq!(self.allocated.insert(addr, size), None);
            }
            Action::FreeRequested => {
                assert_eq!(self.allocated.remove(&addr), Some(size), "{addr:#x} was not allocated");
            }
            Action::FreeCompleted => {
                assert_eq!(self.active.remove(&addr), Some(size), "{addr:#x} was not in use");
            }
            Action::SegmentAlloc => assert_eq!(self.segments.insert(addr, size), None),
            Action::SegmentFree => assert_eq!(self.segments.remove(&addr), Some(size)),
            Action::SegmentMap => self.map(addr, size),
            Action::SegmentUnmap => self.unmap(addr, addr + size),
            _ => {}
        }
    }

    fn map(&mut self, addr: u64, size: u64) {
        let (mut start, mut end) = (addr, addr + size);
        if let Some((&s, &e)) = self.mapped.range(..start).next_back() {
            assert!(e <= start, "{addr:#x} is mapped twice");
            if e == start {
                self.mapped.remove(&s);
                start = s;
            }
        }
        if let Some(e) = self.mapped.remove(&end) {
            end = e;
        }
        self.mapped.insert(start, end);
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let (&s, &e) = self.mapped.range(..=start).next_back().expect("it is mapped");
        assert!(e >= end, "{start:#x} is not mapped as a whole");
        self.mapped.remove(&s);
        if s < start {
            self.mapped.insert(s, start);
        }
        if end < e {
            self.mapped.insert(end, e);
        }
    }
}

#[test]
fn the_history_alone_tells_which_blocks_and_segments_are_there() {
    for Run { pair, history } in runs() {
        let mut rebuilt = Rebuilt::default();
        history.iter().for_each(|entry| rebuilt.take(entry));
        let (mut active, mut allocated) = (BTreeMap::new(), BTreeMap::new());
        let (mut segments, mut mapped) = (BTreeMap::new(), BTreeMap::new());
        for segment in pair.model().segments() {
            if segment.expandable {
                mapped.insert(segment.addr, segment.addr + segment.size);
            } else {
                segments.insert(segment.addr, segment.size);
            }
            for block in segment.blocks {
                if block.state != BlockState::Inactive {
                    active.insert(block.addr, block.requested);
                }
                if block.state == BlockState::ActiveAllocated {
                    allocated.insert(block.addr, block.requested);
                }
            }
        }
        assert_eq!(rebuilt.active, active);
        assert_eq!(rebuilt.allocated, allocated);
        assert_eq!(rebuilt.segments, segments);
        // Two reservations can adjoin; then the history shows one range.
        let joined = mapped.iter().fold(Rebuilt::default(), |mut all, (s, e)| {
            all.map(*s, e - s);
            all
        });
        assert_eq!(rebuilt.mapped, joined.mapped);
    }
}

/// A counter that goes up and down with certain entries of the history.
fn counted(history: &[Entry], change: impl Fn(&Entry) -> i64) -> Stat {
    history.iter().fold(Stat::default(), |mut stat, entry| {
        let by = change(entry);
        stat.current += by;
        stat.allocated += by.max(0);
        stat.freed += (-by).max(0);
        stat.peak = stat.peak.max(stat.current);
        stat
    })
}

#[test]
fn counters_without_block_sizes_follow_from_the_history_peaks_included() {
    for Run { pair, history } in runs() {
        let stats = pair.model().stats();
        let signed = |e: &Entry| i64::try_from(e.size).expect("below 2^60");
        let allocation = counted(&history, |e| match e.action {
            Action::Alloc => 1,
            Action::FreeRequested => -1,
            _ => 0,
        });
        let active = counted(&history, |e| match e.action {
            Action::Alloc => 1,
            Action::FreeCompleted => -1,
            _ => 0,
        });
        let requested = counted(&history, |e| match e.action {
            Action::Alloc => signed(e),
            Action::FreeCompleted => -signed(e),
            _ => 0,
        });
        let reserved = counted(&history, |e| match e.action {
            Action::SegmentAlloc | Action::SegmentMap => signed(e),
            Action::SegmentFree | Action::SegmentUnmap => -signed(e),
            _ => 0,
        });
        let segment = counted(&history, |e| match e.action {
            Action::SegmentAlloc => 1,
            Action::SegmentFree => -1,
            _ => 0,
        });
        assert_eq!(stats.all(Family::Allocation), allocation);
        assert_eq!(stats.all(Family::Active), active);
        assert_eq!(stats.all(Family::RequestedBytes), requested);
        assert_eq!(stats.all(Family::ReservedBytes), reserved);
        assert_eq!(stats.all(Family::Segment), segment);
        let number =
            |wanted: fn(Action) -> bool| history.iter().filter(|e| wanted(e.action)).count() as i64;
        assert_eq!(stats.num_device_alloc, number(Action::is_growth));
        assert_eq!(stats.num_device_free, number(Action::is_release));
        assert_eq!(stats.num_ooms, number(|a| a == Action::Oom));
    }
}

pub(crate) const FAMILIES: [Family; 9] = [
    Family::Allocation,
    Family::Segment,
    Family::Active,
    Family::InactiveSplit,
    Family::AllocatedBytes,
    Family::ReservedBytes,
    Family::ActiveBytes,
    Family::InactiveSplitBytes,
    Family::RequestedBytes,
];

#[test]
fn every_counter_balances_and_its_halves_add_up() {
    for Run { pair, .. } in runs() {
        let stats = pair.model().stats();
        let mut all = vec![stats.oversize_allocations, stats.oversize_segments];
        for family in FAMILIES {
            let [whole, small, large] =
                [stats.all(family), stats.pool(family, true), stats.pool(family, false)];
            assert_eq!(whole.current, small.current + large.current, "{family:?}");
            assert_eq!(whole.allocated, small.allocated + large.allocated, "{family:?}");
            assert_eq!(whole.freed, small.freed + large.freed, "{family:?}");
            assert!(whole.peak >= small.peak.max(large.peak), "{family:?}");
            assert!(whole.peak <= small.peak + large.peak, "{family:?}");
            all.extend([whole, small, large]);
        }
        for stat in all {
            assert_eq!(stat.allocated - stat.freed, stat.current);
            assert!(stat.peak >= stat.current);
        }
        let pairs = stats.to_pairs(vramwise_types::TorchVersion::REFERENCE);
        assert_eq!(pairs.len(), 122);
    }
}

#[test]
fn what_was_taken_from_the_device_and_not_returned_is_reserved() {
    for Run { pair, .. } in runs() {
        let counts = pair.model().device().counts();
        let reserved = pair.model().reserved_bytes();
        assert_eq!(counts.bytes_taken - counts.bytes_returned, reserved);
        let segments: u64 = pair.model().segments().iter().map(|s| s.size).sum();
        assert_eq!(segments, reserved);
        let stats = pair.model().stats();
        assert_eq!(stats.num_device_alloc as u64, counts.mallocs + counts.maps);
        assert_eq!(stats.num_device_free as u64, counts.frees + counts.unmaps);
    }
}

#[test]
fn the_same_program_gives_the_same_history_twice() {
    for seed in 0..10 {
        let (once, twice) = (run(seed, 800), run(seed, 800));
        assert_eq!(once.history, twice.history);
        assert_eq!(once.pair.model().stats(), twice.pair.model().stats());
        assert_eq!(once.pair.model().segments(), twice.pair.model().segments());
    }
}

#[test]
fn nothing_stays_when_everything_is_freed_and_the_cache_emptied() {
    for Run { mut pair, .. } in runs() {
        pair.wind_down().expect("model and reference agree that nothing stays");
        assert_eq!(pair.model().reserved_bytes(), 0);
        for family in FAMILIES {
            assert_eq!(pair.model().stats().all(family).current, 0, "{family:?}");
        }
        assert_eq!(pair.model().device().held_bytes(), 0);
    }
}

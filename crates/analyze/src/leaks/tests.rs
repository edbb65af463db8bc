//! A program that keeps its logits, others that keep nothing, and made-up histories.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use vramwise_trace::{ReadOptions, Snapshot, read_path, read_slice};

use super::*;

fn read(name: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots");
    let path = folder.join(format!("{name}.snapshot.pickle.gz"));
    read_path(&path, &ReadOptions::default()).expect("a recording of ours")
}

fn found(snapshot: &Snapshot) -> DeviceLeaks {
    find(snapshot, &Options::default()).expect("no marker is asked for").swap_remove(0)
}

#[test]
fn the_line_that_makes_what_is_kept_is_named() {
    let found = found(&read("leak__default__stacks"));
    assert_eq!(found.leaks.len(), 1, "{:?}", found.leaks);
    let leak = &found.leaks[0];
    assert_eq!(leak.place, "train.py:182 w_leak");
    // 4 sequences of 256 tokens, 50,257 logits of 4 bytes each.
    assert_eq!(leak.bytes_per_step, 4 * 256 * 50_257 * 4);
    assert_eq!((leak.steps, leak.grew), (7, 7));
    assert!(leak.confidence > 0.9 && leak.frames.iter().any(|f| f.contains("linear.py:134")));
}

#[test]
fn without_stacks_and_annotations_the_size_is_named() {
    let mut snapshot = read("leak__default__stacks");
    snapshot.annotations.clear();
    snapshot.devices[0].events.stack.clear();
    let found = found(&snapshot);
    assert!(matches!(found.steps.source, StepSource::Period(_)));
    assert_eq!(found.leaks.len(), 1);
    assert_eq!(found.leaks[0].bytes_per_step, 4 * 256 * 50_257 * 4);
}

#[test]
fn programs_that_keep_nothing_have_no_leak() {
    for name in [
        "cudagraph__default",
        "fuzz00__default",
        "lstm_varlen__default",
        "moe__default",
        "oom_fragmented__default__stacks",
        "oom_growing_batch__default__stacks",
        "streams__default",
        "pools2__default",
        "public/lm-forward-expandable",
        "public/lm-train-200",
        "public/lm-train-200-amp",
        "public/lm-train-midrun",
        "public/synthetic-mosaic",
    ] {
        let mut snapshot = read(name);
        assert_eq!(found(&snapshot).leaks, [], "{name}");
        snapshot.annotations.clear();
        assert_eq!(found(&snapshot).leaks, [], "{name} without annotations");
        snapshot.devices[0].events.stack.clear();
        assert_eq!(found(&snapshot).leaks, [], "{name} without stacks");
    }
}

#[test]
fn a_marker_that_does_not_occur_is_refused_with_those_that_do() {
    let snapshot = read("leak__default__stacks");
    let marker = |name: &str| Options { marker: Some(name.to_owned()), ..Options::default() };
    let refused = find(&snapshot, &marker("epoch")).expect_err("there is none");
    assert!(refused.known.iter().any(|name| name.starts_with("Optimizer.step")));
    let by_part = find(&snapshot, &marker("zero_grad")).expect("there is one");
    assert_eq!(by_part[0].steps.source, StepSource::Marker("zero_grad".to_owned()));
    assert_eq!(by_part[0].leaks.len(), 1);
}

/// A history of steps: each allocates and frees `temporaries`, and keeps the blocks that `kept` says.
fn history(steps: usize, temporaries: &[u64], kept: impl Fn(usize) -> Vec<u64>) -> Snapshot {
    history_with(steps, temporaries, kept, |_| false)
}

/// The same, where some steps have stacks: of what is kept `train.py:1`, of all else `train.py:2`.
fn history_with(
    steps: usize,
    temporaries: &[u64],
    kept: impl Fn(usize) -> Vec<u64>,
    stacks: impl Fn(usize) -> bool,
) -> Snapshot {
    let mut events = String::new();
    let mut marks = String::new();
    let (mut addr, mut time) = (1u64 << 20, 1000u64);
    let mut entry = |action: &str, addr: u64, size: u64, time: u64, line: Option<u32>| {
        let comma = if events.is_empty() { "" } else { "," };
        let frames = line.map_or(String::new(), |line| {
            format!(
                ",\"frames\":[{{\"filename\":\"train.py\",\"line\":{line},\"name\":\"train\"}}]"
            )
        });
        let _ = write!(
            events,
            "{comma}{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":0,\"time_us\":{time}{frames}}}"
        );
    };
    for step in 0..steps {
        let line = |line| stacks(step).then_some(line);
        for size in kept(step) {
            entry("alloc", addr, size, time, line(1));
            addr += 1 << 30;
            time += 1;
        }
        for size in temporaries {
            entry("alloc", addr, *size, time, line(2));
            entry("free_requested", addr, *size, time + 1, None);
            entry("free_completed", addr, *size, time + 1, None);
            addr += 1 << 30;
            time += 2;
        }
        let comma = if marks.is_empty() { "" } else { "," };
        let _ = write!(
            marks,
            "{comma}{{\"stage\":\"START\",\"name\":\"step\",\"device\":0,\"time_us\":{time}}},\
             {{\"stage\":\"END\",\"name\":\"step\",\"device\":0,\"time_us\":{time}}}"
        );
        time += 10;
    }
    let text = format!(
        "{{\"segments\":[],\"device_traces\":[[{events}]],\"external_annotations\":[{marks}]}}"
    );
    read_slice(text.as_bytes(), &ReadOptions::default()).expect("a snapshot")
}

#[test]
fn a_device_without_marks_of_its_own_has_those_of_the_program() {
    // One process with several devices marks its steps on the current one.
    let mut snapshot = history(12, &[4096], |_| vec![1 << 20]);
    snapshot.devices.insert(0, DeviceTrace::default());
    assert!(snapshot.annotations.iter().all(|a| a.device == Some(0)));
    let found = find(&snapshot, &Options { device: Some(1), ..Options::default() })
        .expect("no marker")
        .swap_remove(0);
    assert_eq!(found.steps.source, StepSource::Annotation("step".to_owned()));
    assert_eq!((found.steps.ends.len(), found.leaks.len()), (12, 1));
}

#[test]
fn a_cache_that_fills_is_no_leak() {
    let cache = history(12, &[4096, 8192], |step| if step < 5 { vec![1 << 20] } else { vec![] });
    let found = found(&cache);
    assert_eq!(found.leaks, []);
    assert_eq!(found.filled.len(), 1);
    assert_eq!((found.filled[0].bytes, found.filled[0].last_step), (5 << 20, 5));
}

#[test]
fn growth_in_every_third_step_is_a_leak_of_less_confidence() {
    let rare = history(24, &[4096], |step| if step % 3 == 0 { vec![3 << 20] } else { vec![] });
    let found = found(&rare);
    assert_eq!(found.leaks.len(), 1);
    assert!(found.leaks[0].confidence < 0.9);
}

#[test]
fn three_steps_are_too_few_to_tell() {
    let short = history(3, &[4096], |_| vec![1 << 20]);
    let found = found(&short);
    assert!(found.steps.too_few() && found.leaks.is_empty());
}

/// As the recorder samples: the first steps, then one in twenty.
fn sampled(step: usize) -> bool {
    step < 3 || step.is_multiple_of(20)
}

#[test]
fn where_some_steps_have_stacks_a_leak_has_its_true_size_and_line() {
    let snapshot = history_with(100, &[4096], |_| vec![1 << 20], sampled);
    let found = found(&snapshot);
    assert_eq!(found.leaks.len(), 1, "{:?}", found.leaks);
    let leak = &found.leaks[0];
    assert_eq!((leak.place.as_str(), leak.bytes_per_step), ("train.py:1 train", 1 << 20));
    // 7 steps have stacks, the first one is passed over, and the rest is watched from the second on.
    assert_eq!((leak.steps, leak.grew), (5, 5));
    let some = found.some_stacks.expect("that is said");
    assert_eq!((some.steps_with_stacks, some.by_stack), (7, true));
    assert_eq!(
        some.note,
        "7 of 100 steps were recorded with stacks: growth is looked for in those"
    );
}

#[test]
fn where_all_steps_have_stacks_or_none_has_nothing_is_said_of_it() {
    for stacks in [true, false] {
        let snapshot = history_with(20, &[4096], |_| vec![1 << 20], |_| stacks);
        assert_eq!(found(&snapshot).some_stacks, None);
    }
}

#[test]
fn what_is_kept_for_one_step_is_no_leak_where_some_steps_have_stacks() {
    let mut snapshot = history_with(100, &[4096], |_| vec![1 << 20], sampled);
    let events = &mut snapshot.devices[0].events;
    let kept: Vec<usize> = (0..events.len()).filter(|i| events.size[*i] == 1 << 20).collect();
    // Each step's block gets the address of the last one but one, which must have gone.
    for (n, at) in kept.iter().enumerate() {
        events.addr[*at] = 1 + (n as u64 % 2);
    }
    assert_eq!(found(&snapshot).leaks, []);
}

#[test]
fn where_too_few_steps_have_stacks_the_size_is_named() {
    let snapshot = history_with(18, &[4096], |_| vec![1 << 20], sampled);
    let found = found(&snapshot);
    assert_eq!(found.leaks.len(), 1, "{:?}", found.leaks);
    let leak = &found.leaks[0];
    assert_eq!((leak.bytes_per_step, leak.steps, leak.grew), (1 << 20, 15, 15));
    assert!(leak.place.starts_with("blocks of 1.00 MiB"), "{}", leak.place);
    let some = found.some_stacks.expect("that is said");
    assert_eq!((some.steps_with_stacks, some.by_stack), (3, false));
    assert!(
        some.note.starts_with("3 of 18 steps were recorded with stacks, too few"),
        "{}",
        some.note
    );
}

#[test]
fn a_cache_that_fills_names_the_step_where_some_have_stacks() {
    let kept = |step| if step < 30 { vec![1 << 20] } else { vec![] };
    let found = found(&history_with(140, &[4096], kept, sampled));
    assert_eq!(found.leaks, []);
    assert_eq!(found.filled[0].last_step, 21);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_kept_in_each_step_is_found_to_the_byte(
        steps in 5usize..30,
        temporaries in prop::collection::vec(512u64..1 << 20, 1..6),
        // No temporary has this size.
        kept in (1u64 << 21)..1 << 26,
        each in 1usize..4,
    ) {
        let snapshot = history(steps, &temporaries, |_| vec![kept; each]);
        let found = found(&snapshot);
        prop_assert_eq!(found.leaks.len(), 1);
        prop_assert_eq!(found.leaks[0].bytes_per_step, kept * each as u64);
        prop_assert_eq!(found.leaks[0].grew, found.leaks[0].steps);
    }

    #[test]
    fn what_is_given_back_is_no_leak(
        steps in 5usize..30,
        temporaries in prop::collection::vec(512u64..1 << 20, 1..6),
        first in prop::collection::vec(512u64..1 << 24, 0..6),
    ) {
        let once = |step: usize| if step == 0 { first.clone() } else { Vec::new() };
        let snapshot = history(steps, &temporaries, once);
        prop_assert_eq!(found(&snapshot).leaks, vec![]);
    }
}

//! The search on real recordings: what it says must be what PyTorch's allocator did.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use vramwise_model::settings::Config;
use vramwise_replay::{Recording, VerifyOptions, recorded_config};
use vramwise_trace::{ReadOptions, read_path};
use vramwise_tune::{Case, Report, TuneOptions, tune};
use vramwise_types::TorchVersion;

fn testdata(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots").join(name)
}

/// A recording's program and its settings; the recording must be exact.
fn case(name: &str) -> (Case, Config) {
    let snapshot =
        read_path(testdata(&format!("{name}.snapshot.pickle.gz")), &ReadOptions::default())
            .expect("a recording of the repository");
    let (config, notes) = recorded_config(snapshot.settings.as_ref(), TorchVersion::REFERENCE);
    assert!(notes.is_empty(), "{notes:?}");
    let options = VerifyOptions::new(config.clone(), TorchVersion::REFERENCE);
    let recording = Recording::verify(&snapshot.devices[0], &options);
    assert!(recording.first_divergence.is_none(), "{:?}", recording.first_divergence);
    (Case::new(name, &recording), config)
}

/// The counters that `torch.cuda.memory_stats()` had at the end of a recording.
fn counters(name: &str) -> BTreeMap<String, i64> {
    #[derive(serde::Deserialize)]
    struct Stats {
        r#final: BTreeMap<String, i64>,
    }
    let file =
        std::fs::File::open(testdata(&format!("{name}.stats.json.gz"))).expect("its counters");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a whole file");
    serde_json::from_str::<Stats>(&text).expect("counters").r#final
}

fn search(names: &[&str], change: impl Fn(&mut TuneOptions)) -> Report {
    let cases: Vec<(Case, Config)> = names.iter().map(|name| case(name)).collect();
    let mut options = TuneOptions::new(TorchVersion::REFERENCE, cases[0].1.clone());
    options.candidates = 60;
    change(&mut options);
    let cases: Vec<Case> = cases.into_iter().map(|(case, _)| case).collect();
    tune(&cases, &options, &|_, _| {})
}

#[test]
fn the_figures_of_a_setting_are_those_that_the_gpu_had_under_it() {
    let report = search(&["lstm_varlen__default"], |_| {});
    for (conf, recording) in
        [("", "lstm_varlen__default"), ("expandable_segments:True", "lstm_varlen__expandable")]
    {
        let found = report.candidates.iter().find(|c| c.conf == conf).expect("it was tried");
        let truth = counters(recording);
        assert_eq!(
            i64::try_from(found.peak_reserved),
            Ok(truth["reserved_bytes.all.peak"]),
            "{conf}"
        );
        assert_eq!(i64::try_from(found.peak_allocated), Ok(truth["allocated_bytes.all.peak"]));
        let calls = found.device_calls;
        assert_eq!(
            i64::try_from(calls.malloc + calls.map),
            Ok(truth["num_device_alloc"]),
            "{conf}"
        );
    }
}

#[test]
fn expandable_segments_are_recommended_for_changing_sizes_and_the_gain_is_large() {
    let report = search(&["moe__default"], |_| {});
    let (now, best) = (&report.candidates[report.baseline], &report.candidates[report.recommended]);
    assert!(best.conf.contains("expandable_segments:True"), "{}", best.conf);
    assert!(
        best.worst_peak() * 100 < now.worst_peak() * 60,
        "{} {}",
        best.worst_peak(),
        now.worst_peak()
    );
    assert!(best.worst_peak() >= report.peak_live);
    assert_eq!(report.load.kind, vramwise_tune::LoadKind::Dynamic);
}

/// Expandable segments that grow in large steps pass a limit of PyTorch's; no card has more than it has.
#[test]
fn what_fits_holds_no_more_than_the_capacity() {
    let capacity = 3 << 30;
    let report = search(&["moe__default"], |o| {
        o.capacity = Some(capacity);
        o.candidates = 128;
    });
    let expandable = |conf: &str| conf.contains("expandable_segments:True");
    assert!(report.candidates.iter().any(|c| expandable(&c.conf)));
    for candidate in &report.candidates {
        let within = candidate.oom_runs > 0 || candidate.peak_reserved <= capacity;
        assert!(within, "{}: {}", candidate.conf, candidate.peak_reserved);
        let smallest = candidate.smallest_capacity.unwrap_or(capacity);
        assert!(candidate.oom_runs > 0 || smallest <= capacity, "{}", candidate.conf);
    }
}

#[test]
fn the_smallest_capacity_holds_the_program_and_less_does_not() {
    let report = search(&["lstm_varlen__default"], |_| {});
    let best = &report.candidates[report.recommended];
    let smallest = best.smallest_capacity.expect("it is looked for in what is recommended");
    assert!(
        smallest >= report.peak_live && smallest <= best.worst_peak().next_multiple_of(2 << 20)
    );
    let failing = |capacity| {
        let report = search(&["lstm_varlen__default"], |o| o.capacity = Some(capacity));
        report.candidates.iter().find(|c| c.config == best.config).map(|c| c.oom_runs)
    };
    assert_eq!(failing(smallest), Some(0));
    assert_eq!(failing(smallest - (2 << 20)), Some(1));
}

#[test]
fn what_is_recommended_needs_no_larger_card_than_now() {
    let report = search(&["lstm_varlen__default"], |o| o.candidates = TuneOptions::CANDIDATES);
    let needs = |i: usize| report.candidates[i].smallest_capacity.expect("it is looked for");
    assert_ne!(report.recommended, report.baseline);
    assert!(needs(report.recommended) <= needs(report.baseline));
}

#[test]
fn the_same_search_gives_the_same_answer() {
    let shown = |_| {
        let report = search(&["lstm_varlen__default"], |o| {
            o.jitter = 2;
            o.seed = 5;
            o.capacity = Some(2 << 30);
        });
        format!("{report:?}")
    };
    assert_eq!(shown(0), shown(1));
}

#[test]
fn several_programs_are_judged_by_the_worst() {
    let one = search(&["lstm_varlen__default"], |_| {});
    let two = search(&["lstm_varlen__default", "moe__default"], |_| {});
    assert_eq!(two.runs, 2);
    let peak = |r: &Report| r.candidates[r.baseline].peak_reserved;
    assert_eq!(i64::try_from(peak(&two)), Ok(counters("moe__default")["reserved_bytes.all.peak"]));
    assert!(peak(&one) < peak(&two));
}

#[test]
fn variations_add_replays_of_the_programs_own_steps() {
    let report = search(&["moe__default"], |o| {
        o.jitter = 3;
        o.candidates = 4;
    });
    assert_eq!(report.runs, 4, "{:?}", report.notes);
}

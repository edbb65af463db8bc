use proptest::prelude::*;
use vramwise_types::TorchVersion;

use super::*;

const MIB: u64 = 1 << 20;
const NEWEST: u16 = 15;

fn torch(minor: u16) -> TorchVersion {
    TorchVersion::new(2, minor)
}

fn config(text: &str, minor: u16) -> Config {
    match parse(text, torch(minor)) {
        Ok(parsed) => parsed.config,
        Err(error) => panic!("{error}"),
    }
}

fn error(text: &str, minor: u16) -> SettingsError {
    parse(text, torch(minor)).expect_err(text)
}

fn codes(lints: &[Lint]) -> Vec<&'static str> {
    lints.iter().map(|l| l.code.name()).collect()
}

#[test]
fn ordinary_strings_give_the_settings_they_say() {
    let c = config("max_split_size_mb:64,max_non_split_rounding_mb:64", 11);
    assert_eq!((c.max_split_size, c.max_non_split_rounding), (64 << 20, 64 << 20));
    let c = config("garbage_collection_threshold:0.8,max_split_size_mb:128", 11);
    assert_eq!((c.garbage_collection_threshold, c.max_split_size), (0.8, 128 << 20));
    let c = config("expandable_segments:True,roundup_power2_divisions:8", 11);
    assert!(c.expandable_segments);
    assert_eq!(c.roundup_power2_divisions, [8; 16]);
    let c = config("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 11);
    assert_eq!(c.roundup_power2_divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
    assert_eq!(config("", 11), Config::default());
    let all = "backend:native,per_process_memory_fraction:0.5,graph_capture_record_stream_reuse:True,\
               release_lock_on_hipmalloc:True,throw_on_cudamalloc_oom:True,pinned_use_hip_host_register:True,\
               pinned_num_register_threads:4,pinned_use_background_threads:True,\
               pinned_reserve_segment_size_mb:2048";
    let c = config(all, 12);
    assert_eq!(c.per_process_memory_fraction, 0.5);
    assert!(c.graph_capture_record_stream_reuse && c.release_lock_on_cudamalloc);
    assert!(c.throw_on_cudamalloc_oom && c.pinned_use_cuda_host_register);
    assert_eq!((c.pinned_num_register_threads, c.pinned_reserve_segment_size), (4, 2048 * MIB));
    assert!(c.pinned_use_background_threads);
}

/// Which minors a range of the table names.
fn accepts(range: &str, minor: u16) -> bool {
    match range {
        "all" => true,
        "none" => false,
        _ => match (range.strip_suffix('+'), range.split_once('-')) {
            (Some(from), _) => minor >= from.parse().unwrap(),
            (_, Some((from, to))) => (from.parse().unwrap()..=to.parse().unwrap()).contains(&minor),
            _ => panic!("range {range}"),
        },
    }
}

#[test]
fn every_string_of_the_table_is_accepted_by_exactly_the_releases_it_names() {
    let table = include_str!("../../../../testdata/settings/strings.tsv");
    let mut rows = 0;
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let [text, range, correction] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for minor in 0..=NEWEST {
            let result = parse(text, torch(minor));
            assert_eq!(
                result.is_ok(),
                accepts(range, minor),
                "'{text}' under 2.{minor}: {result:?}"
            );
            if let Err(error) = &result
                && let Some(s) = &error.suggestion
            {
                assert!(parse(s, torch(minor)).is_ok(), "'{text}' under 2.{minor} proposes '{s}'");
                assert_ne!(s, text);
            }
        }
        let result = parse(text, torch(11));
        match (correction, result.err().map(|e| e.suggestion.clone())) {
            ("=", None) | ("-", Some(None)) => {}
            (want, Some(Some(got))) if want == got => {}
            (want, got) => panic!("'{text}': correction '{want}' expected, not {got:?}"),
        }
        rows += 1;
    }
    assert!(rows > 80);
}

#[test]
fn the_arrow_begins_with_the_last_interval_up_to_2_9_and_behind_it_from_2_10_on() {
    let text = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
    assert_eq!(config(text, 9).roundup_power2_divisions[10], 8);
    assert_eq!(config(text, 10).roundup_power2_divisions[10], 4);
    // Alone, it begins with the lowest class or the one behind it.
    assert_eq!(config("roundup_power2_divisions:[>:2]", 9).roundup_power2_divisions, [2; 16]);
    assert_eq!(config("roundup_power2_divisions:[>:2]", 11).roundup_power2_divisions[..2], [0, 2]);
}

#[test]
fn lists_fill_below_the_first_entry_and_leave_gaps_empty() {
    let c = config("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]", 11);
    let want = [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1];
    assert_eq!(c.roundup_power2_divisions, want);
    // Beyond 32 GiB everything is the last class.
    let c = config("roundup_power2_divisions:[1048576:2]", 11);
    assert_eq!(c.roundup_power2_divisions, [2; 16]);
}

#[test]
fn numbers_wrap_and_drop_what_stands_behind_them() {
    assert_eq!(config("max_split_size_mb:512MB", 11).max_split_size, 512 * MIB);
    // Not the same as the default, although it means as much.
    assert_eq!(config("max_split_size_mb:-1", 11).max_split_size, u64::MAX - (MIB - 1));
    assert_eq!(config("max_split_size_mb:-1", 5).max_split_size, u64::MAX - (MIB - 1));
    assert_eq!(config("max_split_size_mb:64,max_split_size_mb:32", 11).max_split_size, 32 * MIB);
    assert_eq!(config("max_ split_size_mb : 6 4", 11).max_split_size, 64 * MIB);
    assert!(parse("max_split_size_mb:\t64", torch(9)).is_err());
    assert!(parse("max_split_size_mb:\t64", torch(10)).is_ok());
}

#[test]
fn the_large_segment_size_is_read_first_and_raises_the_minima() {
    let c = config("max_split_size_mb:12,large_segment_size_mb:12", 11);
    assert_eq!((c.max_split_size, c.large_segment_size), (12 * MIB, 12 * MIB));
    assert_eq!(c.max_non_split_rounding, 12 * MIB);
    let e = error("max_split_size_mb:32,large_segment_size_mb:64", 11);
    assert_eq!(e.problem, Problem::TooSmall { value: 32, minimum: 64 });
    assert_eq!(
        error("large_segment_size_mb:10", 11).problem,
        Problem::TooSmall { value: 10, minimum: 11 }
    );
}

#[test]
fn a_running_process_keeps_what_the_new_string_does_not_mention() {
    let first = config(
        "expandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:40,garbage_collection_threshold:0.5,roundup_power2_divisions:4,large_segment_size_mb:32",
        11,
    );
    let second = parse_onto(&first, "", torch(11)).unwrap().config;
    let want = Config {
        expandable_segments: true,
        large_segment_size: 32 * MIB,
        max_non_split_rounding: 32 * MIB,
        ..Config::default()
    };
    assert_eq!(second, want);
    // Before 2.11 max_non_split_rounding_mb stays.
    let first = config("max_split_size_mb:64,max_non_split_rounding_mb:40", 8);
    let second = parse_onto(&first, "", torch(8)).unwrap().config;
    assert_eq!((second.max_non_split_rounding, second.max_split_size), (40 * MIB, u64::MAX));
}

#[test]
fn the_backend_cannot_change_after_loading() {
    let native = Config::default();
    let e = parse_onto(&native, "backend:cudaMallocAsync", torch(11)).unwrap_err();
    assert!(matches!(e.problem, Problem::BackendChanged { .. }));
    assert!(parse("backend:native,backend:cudaMallocAsync", torch(11)).is_err());
    // At load time the checked dialect cuts at spaces and so misses this one.
    assert!(parse("backend: cudaMallocAsync", torch(8)).is_err());
    assert_eq!(config("backend: cudaMallocAsync", 11).backend, Backend::CudaMallocAsync);
}

#[test]
fn what_pytorch_itself_does_depends_on_the_release() {
    let reaction = |text: &str, minor| error(text, minor).reaction.clone();
    assert_eq!(reaction("expandable_segments", 11), Reaction::AbortsAtImport);
    assert!(matches!(
        reaction("expandable_segments", 13),
        Reaction::Raises { exception: "ValueError", .. }
    ));
    assert!(matches!(
        reaction("expandable_segments", 8),
        Reaction::Raises { exception: "RuntimeError", .. }
    ));
    for text in [
        "expandable_segments=True",
        "max_split_size_mb:128;max_x:1",
        "roundup_power2_divisions:[64:8",
    ] {
        assert_eq!(reaction(text, 11), Reaction::AbortsAtImport, "{text}");
    }
    assert_eq!(reaction("roundup_power2_divisions:[64:8", 8), Reaction::ReadsPastTheEnd);
    let Reaction::Raises { exception, gist } = reaction("nothing:1", 11) else { panic!() };
    assert_eq!((exception, gist.as_str()), ("ValueError", "Unrecognized key 'nothing'"));
    let Reaction::Raises { exception, gist } = reaction("nothing:1", 2) else { panic!() };
    assert_eq!(
        (exception, gist.as_str()),
        ("RuntimeError", "Unrecognized CachingAllocator option: nothing")
    );
    let Reaction::Raises { exception, gist } = reaction("max_split_size_mb:x", 11) else {
        panic!()
    };
    assert_eq!((exception, gist.as_str()), ("RuntimeError", "stoull"));
}

#[test]
fn errors_say_where_and_what_was_meant() {
    let e = error("max_split_size_mb:128,expandeable_segments:True", 11);
    assert_eq!(e.offset, 22);
    assert_eq!(
        e.to_string(),
        "no option is called 'expandeable_segments' (byte 22 of \"max_split_size_mb:128,expandeable_segments:True\"); \
         PyTorch 2.11 raises ValueError at the first use of CUDA (\"Unrecognized key 'expandeable_segments'\"); \
         'expandeable_segments' is probably expandable_segments; \
         write \"max_split_size_mb:128,expandable_segments:True\""
    );
    let e = error("expandable_segments:True", 0);
    assert_eq!(e.problem.to_string(), "option 'expandable_segments' needs PyTorch 2.1 or later");
    assert_eq!(e.suggestion, None);
}

#[test]
fn odd_strings_that_pass_are_warned_of() {
    let warned = |text: &str| codes(&parse(text, torch(11)).unwrap().warnings);
    assert_eq!(warned("max_split_size_mb,512"), ["wrong-separator"]);
    assert_eq!(warned("max_split_size_mb:512MB"), ["text-behind-number"]);
    assert_eq!(warned("max_split_size_mb:-1"), ["negative-wraps"]);
    assert_eq!(warned("expandable_segments:True,expandable_segments:False"), ["repeated-option"]);
    assert_eq!(
        warned("backend:cudaMallocAsync,release_lock_on_cudamalloc:True"),
        ["ignored-by-backend"]
    );
    assert_eq!(warned("max_split_size_mb:64"), [""; 0]);
    let parsed = parse("expandable_segments_reserve:none", torch(15)).unwrap();
    assert_eq!(codes(&parsed.warnings), ["reserve-ignored"]);
    assert!(parsed.unmodelled.is_empty());
    let parsed = parse("expandable_segments_reserve_by_class:[a:0.5,b:x,c:4G]", torch(15)).unwrap();
    assert_eq!(
        parsed.unmodelled.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>(),
        ["a:0.5", "c:4G"]
    );
}

#[test]
fn doubtful_strings_are_linted() {
    let has = |text: &str, minor, code: &str| {
        let lints = lint(text, torch(minor));
        assert!(codes(&lints).contains(&code), "{text} under 2.{minor}: {lints:?}");
    };
    has("garbage_collection_threshold:0.8", 11, "gc-needs-fraction");
    has("throw_on_cudamalloc_oom:True", 12, "throw-needs-fraction");
    has("max_non_split_rounding_mb:64", 11, "rounding-needs-split");
    has("expandable_segments_reserve:0.5", 15, "reserve-needs-expandable");
    has("pinned_num_register_threads:8", 11, "threads-need-register");
    has("expandable_segments:True,max_split_size_mb:128", 11, "split-with-expandable");
    has("expandable_segments:True,garbage_collection_threshold:0.8", 11, "gc-with-expandable");
    has("max_split_size_mb:400000", 11, "limit-above-card");
    has("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 11, "roundup-arrow");
    has("roundup_power2_divisions:[64:8,256:4]", 11, "roundup-gap");
    has("roundup_power2_divisions:1", 11, "roundup-no-effect");
    has("roundup_power2_divisions:8", 11, "roundup-every-size");
    has("per_process_memory_fraction:0", 11, "fraction-zero");
    has("expandable_segments:True", 11, "needs-version");
    has("expandable_segments=True", 11, "refused");
    has("backend:cudaMallocAsync,max_split_size_mb:64", 11, "ignored-by-backend");
    for clean in ["", "max_split_size_mb:128", "backend:cudaMallocAsync"] {
        assert_eq!(lint(clean, torch(11)), [], "{clean}");
    }
    let on_small_card = lint_for_card("max_split_size_mb:16000", torch(11), Some(8 << 30));
    assert_eq!(codes(&on_small_card), ["limit-above-card"]);
    let limited = "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9";
    assert!(!codes(&lint(limited, torch(11))).contains(&"gc-needs-fraction"));
}

#[test]
fn code_names_are_distinct_and_lower_case() {
    let mut names: Vec<_> = Code::ALL.iter().map(|c| c.name()).collect();
    assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ALL.len());
}

#[test]
fn the_variable_depends_on_the_release() {
    assert_eq!(lint_variable("PYTORCH_CUDA_ALLOC_CONF", torch(11)), None);
    assert_eq!(lint_variable("PYTORCH_ALLOC_CONF", torch(11)), None);
    for (name, minor) in [
        ("PYTORCH_CUDA_ALLOC_CONF", 10),
        ("PYTORCH_ALLOC_CONF", 8),
        ("PYTORCH_ALLOC_CONF", 9),
        ("PYTORCH_HIP_ALLOC_CONF", 11),
        ("PYTORCH_CUDA_ALLOC_CONF_0", 11),
    ] {
        assert!(lint_variable(name, torch(minor)).is_some(), "{name} {minor}");
    }
    assert_eq!(lint_variable("PATH", torch(11)), None);
    for minor in 0..=NEWEST {
        assert_eq!(lint_variable(variable_for(torch(minor)), torch(minor)).is_some(), minor == 9);
    }
}

#[test]
fn settings_print_as_short_strings() {
    let print = |text: &str, minor| config(text, minor).to_conf_string(torch(minor));
    assert_eq!(print("", 11), "");
    assert_eq!(
        print("max_split_size_mb:64MB, expandable_segments:True,", 11),
        "expandable_segments:True,max_split_size_mb:64"
    );
    assert_eq!(print("roundup_power2_divisions:[1:4,>:4]", 11), "roundup_power2_divisions:4");
    for list in ["[256:1,512:2,1024:4,>:8]", "[>:8]", "[2:0,>:8]", "[64:8,256:4,1024:4,>:1]"] {
        let text = format!("roundup_power2_divisions:{list}");
        assert_eq!(print(&text, 11), text);
    }
    assert_eq!(print("pinned_use_background_threads:True", 11), "");
    let full = config("pinned_use_background_threads:True", 11).to_full_conf_string(torch(11));
    assert_eq!(full, "pinned_use_background_threads:True");
    assert_eq!(print("max_split_size_mb:-1", 8), "max_split_size_mb:-1");
    // Left out where the release does not know it.
    let c = config(
        "expandable_segments:True,large_segment_size_mb:32,max_non_split_rounding_mb:32",
        11,
    );
    let c = Config { max_non_split_rounding: 20 * MIB, ..c };
    assert_eq!(c.to_conf_string(torch(8)), "expandable_segments:True");
    assert!(!c.is_expressible(torch(8)) && !c.is_expressible(torch(11)));
}

#[test]
fn settings_are_described_in_words() {
    assert!(Config::default().describe().is_empty());
    let words = config("expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:[64:8,>:1],garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,large_segment_size_mb:32,throw_on_cudamalloc_oom:True,graph_capture_record_stream_reuse:True,release_lock_on_cudamalloc:True,pinned_use_background_threads:True", 12).describe();
    assert_eq!(words.len(), 10);
    assert_eq!(config("backend:cudaMallocAsync,max_split_size_mb:64", 11).describe().len(), 1);
}

#[test]
fn huge_and_odd_strings_are_refused_in_short_messages() {
    let long = "x".repeat(1 << 20);
    assert!(error(&long, 11).to_string().len() < 1000);
    let many = "a=b;".repeat(1000);
    assert!(error(&many, 11).to_string().len() < 2000, "{}", error(&many, 11));
}

/// Pieces that settings strings are made of, right and wrong.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(super::keys::KEYS.iter().map(|k| k.name).collect::<Vec<_>>());
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        4 => prop::sample::select(vec![",", ":", "[", "]", "=", ";", " ", ">", "\"", "'", "\t"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec!["True", "False", "true", "native", "cudaMallocAsync", "-1", "0", "20", "21", "64", "0.8", "1.0", "8", "3", "512MB", "40G", "nan", "1e400", "99999999999999999999"]).prop_map(str::to_owned),
        1 => ".{0,6}".prop_map(|s| s),
    ]
}

/// Settings that some string expresses, in every dialect.
fn expressible() -> impl Strategy<Value = Config> {
    let mb = 21..100_000_u64;
    let power = prop::sample::select(vec![1_u64, 2, 4, 8, 16, 256]);
    let table = prop_oneof![
        Just([0; ROUNDUP_BUCKETS]),
        power.clone().prop_map(|n| [n; ROUNDUP_BUCKETS]),
        prop::collection::vec(prop_oneof![Just(0), power], ROUNDUP_BUCKETS)
            .prop_map(|v| v.try_into().unwrap()),
        (1..ROUNDUP_BUCKETS, 0..2_usize).prop_map(|(from, low)| {
            let mut t = [low as u64; ROUNDUP_BUCKETS];
            t[from..].fill(8);
            t
        }),
    ];
    let options = (
        prop::option::of(mb.clone()),
        prop::option::of(mb),
        table,
        prop::option::of(0.001..0.999_f64),
        any::<[bool; 5]>(),
        0.0..=1.0_f64,
    );
    options.prop_map(
        |(split, rounding, table, gc, [expand, reuse, lock, register, background], fraction)| {
            Config {
                max_split_size: split.map_or(u64::MAX, |m| m * MIB),
                max_non_split_rounding: rounding.map_or(20 * MIB, |m| m * MIB),
                roundup_power2_divisions: table,
                garbage_collection_threshold: gc.unwrap_or(0.0),
                expandable_segments: expand,
                per_process_memory_fraction: fraction,
                graph_capture_record_stream_reuse: reuse,
                release_lock_on_cudamalloc: lock,
                pinned_use_cuda_host_register: register,
                pinned_use_background_threads: background,
                ..Config::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn no_string_panics_and_every_proposal_parses(
        pieces in prop::collection::vec(piece(), 0..14),
        minor in 0..=NEWEST,
    ) {
        let text = pieces.concat();
        match parse(&text, torch(minor)) {
            Ok(parsed) => {
                prop_assert_eq!(parse(&text, torch(minor)).unwrap(), parsed.clone());
                // What was read can be printed and read again.
                let printed = parsed.config.to_full_conf_string(torch(minor));
                let again = parse(&printed, torch(minor));
                prop_assert!(again.is_ok(), "'{}' prints as '{}'", text, printed);
                if parsed.config.backend == Backend::Native {
                    prop_assert_eq!(again.unwrap().config, parsed.config, "'{}' prints as '{}'", text, printed);
                }
            }
            Err(e) => {
                prop_assert!(e.offset <= text.len());
                prop_assert!(!e.to_string().is_empty());
                if let Some(s) = &e.suggestion {
                    prop_assert!(parse(s, torch(minor)).is_ok(), "'{}' proposes '{}'", text, s);
                }
            }
        }
        lint(&text, torch(minor));
        let _ = parse_onto(&Config::default(), &text, torch(minor));
    }

    #[test]
    fn expressible_settings_survive_printing(config in expressible()) {
        let version = torch(11);
        let text = config.to_full_conf_string(version);
        prop_assert_eq!(&parse(&text, version).unwrap().config, &config, "{}", text);
        prop_assert!(config.is_expressible(version));
        config.describe();
    }

    #[test]
    fn old_releases_get_strings_that_they_accept(config in expressible(), minor in 0..=NEWEST) {
        let text = config.to_conf_string(torch(minor));
        let parsed = parse(&text, torch(minor));
        prop_assert!(parsed.is_ok(), "{}", text);
        if config.is_expressible(torch(minor)) {
            let again = parse(&config.to_full_conf_string(torch(minor)), torch(minor)).unwrap();
            prop_assert_eq!(again.config, config);
        }
    }
}

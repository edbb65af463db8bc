use proptest::prelude::*;
use serde_json::Value as Json;
use vramwise_types::{GIB, MIB};

use super::*;

fn cases() -> Vec<Json> {
    let text = include_str!("../../../../testdata/oom/cases.jsonl");
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// What is wrong with the numbers of a case, in words; the first event with numbers is the one
/// meant.
fn differences(case: &Json, events: &[Event]) -> Vec<String> {
    let none = Numbers::default();
    let numbers =
        events.iter().find(|e| e.numbers.any()).or(events.first()).map_or(&none, |e| &e.numbers);
    let mut out = Vec::new();
    for (key, got) in [
        ("tried_bytes", numbers.tried),
        ("total_bytes", numbers.total),
        ("free_bytes", numbers.free),
        ("allocated_bytes", numbers.allocated),
        ("reserved_bytes", numbers.reserved),
        ("reserved_unallocated_bytes", numbers.reserved_unallocated),
        ("process_in_use_bytes", numbers.process_in_use),
    ] {
        let want = case.get(key).and_then(Json::as_u64);
        let close = match (want, got) {
            (None, None) => true,
            (Some(want), Some(got)) => got.bytes.abs_diff(want) <= got.slop.max(1),
            _ => false,
        };
        if !close {
            out.push(format!("{key}: {want:?} expected, not {:?}", got.map(|a| a.bytes)));
        }
    }
    let gpu = case.get("gpu").and_then(Json::as_u64);
    if gpu.is_some() && numbers.gpu.map(u64::from) != gpu {
        out.push(format!("gpu: {gpu:?} expected, not {:?}", numbers.gpu));
    }
    out
}

#[test]
fn every_case_yields_its_numbers() {
    let mut wrong = Vec::new();
    for case in cases() {
        let events = find_events(case["text"].as_str().unwrap());
        let mut faults = differences(&case, &events);
        if events.is_empty() {
            faults.push("no event".to_owned());
        }
        if !faults.is_empty() {
            wrong.push(format!("{}: {}", case["id"], faults.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The event that a case is about, explained.
fn explained(text: &str) -> Explanation {
    explain_log(text).primary().cloned().unwrap_or_else(|| panic!("no event in {text}"))
}

fn case(id: &str) -> Explanation {
    let case = cases().into_iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("{id}"));
    explained(case["text"].as_str().unwrap())
}

#[test]
fn the_cause_agrees_with_the_one_that_the_source_states() {
    // What the source says, and the causes here that say the same of a bare text. "Config mistake"
    // and "leak" are told in threads, with commands and code that the text does not hold; the
    // arithmetic is then right all the same, and these are listed one by one.
    let by_word = |id: &str, word: &str, cause: Cause| match (id, word) {
        ("pinokio-driver" | "18853-recovery", _) => cause == Cause::TrueCapacity,
        ("mps-96814-env-ignored" | "mps-llamaindex-kwarg", _) => {
            cause == Cause::MpsOtherAllocations
        }
        // More than the card has, without a sign of where it lies.
        ("async-no-paren" | "meshgen-windows-2.5", _) => cause == Cause::MoreThanCard,
        ("tf-decoy", _) => cause == Cause::OtherFramework,
        (_, "other process holds GPU") => cause == Cause::OtherProcess,
        (_, "model too large" | "batch too large") => matches!(
            cause,
            Cause::TrueCapacity
                | Cause::RequestLargerThanCard
                | Cause::SystemMemorySpill
                | Cause::MpsLimit
        ),
        (_, "config mistake") => {
            matches!(cause, Cause::MemoryLimit | Cause::SettingsConflict | Cause::NotOutOfMemory)
        }
        (_, "unknown") => true,
        _ => false,
    };
    let mut checked = 0;
    for case in cases() {
        let (id, Some(word)) =
            (case["id"].as_str().unwrap(), case.get("true_cause").and_then(Json::as_str))
        else {
            continue;
        };
        let found = explained(case["text"].as_str().unwrap());
        assert!(by_word(id, word, found.cause), "{id}: {word}, not {:?}", found.cause);
        checked += 1;
    }
    assert!(checked >= 15);
}

#[test]
fn the_arithmetic_is_in_the_reasons() {
    let found = case("taming-split128-set");
    assert_eq!(found.cause, Cause::TrueCapacity);
    assert_eq!(
        found.why[0],
        "no allocator setting can help: slack is 590.64 MiB, the request 1.39 GiB"
    );
    let found = case("url-on-next-line");
    assert_eq!(found.cause, Cause::Fragmentation);
    assert!(
        found.why[0].contains("6.62 GiB free + 8.71 GiB cached by PyTorch and unused = 15.33 GiB")
    );
    let found = case("trl-ci-4-processes-alloc-conf");
    assert_eq!(found.cause, Cause::OtherProcess);
    assert!(found.why[0].contains("= 4.23 GiB held by other processes"), "{:?}", found.why);
}

#[test]
fn impossible_numbers_are_recognised_and_not_used() {
    for id in ["wsl-sentinel-two-lines", "wsl-sentinel-dreamer"] {
        let found = case(id);
        assert_eq!(found.cause, Cause::SystemMemorySpill, "{id}");
        assert!(found.event.numbers.impossible.contains(&"process_in_use"));
        assert!(found.facts.iter().any(|f| f.name == "nvml-sentinel"));
    }
    assert_eq!(case("cap-limited-container").cause, Cause::MemoryLimit);
    assert_eq!(case("16eib-comment").cause, Cause::AbsurdRequest);
    assert_eq!(case("stylegaussian-130674g").cause, Cause::AbsurdRequest);
    assert!(case("cobra-process-pid").facts.iter().any(|f| f.name == "pid-namespace"));
}

#[test]
fn small_leftovers_on_a_full_card_are_no_fragmentation() {
    for id in [
        "16417-2024-comment",
        "hunyuan-braces",
        "lora-trainer-8g",
        "vllm-two-processes-zh",
        "mtvcrafter-44g",
    ] {
        let found = case(id);
        assert_eq!(found.cause, Cause::TrueCapacity, "{id}");
        let actions: Vec<&str> = found.advice.iter().map(|a| a.action.as_str()).collect();
        assert!(!actions.iter().any(|a| a.starts_with("set PYTORCH")), "{id}: {actions:?}");
        assert!(
            actions.iter().any(|a| a.starts_with("do not expect anything of expandable")),
            "{id}"
        );
    }
    assert_eq!(case("inductor-notebook-896kib").cause, Cause::PrivatePools);
}

const FRAGMENTED: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process has 23.10 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 10.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

#[test]
fn advice_in_force_is_not_given() {
    let advises = |text: &str, words: &str| {
        explained(text)
            .advice
            .iter()
            .any(|a| a.action.contains(words) && a.action.contains("set PYTORCH"))
    };
    assert!(advises(FRAGMENTED, "expandable_segments:True"));
    assert!(advises(FRAGMENTED, "max_split_size_mb:"));
    let with = |setting: &str| format!("export PYTORCH_CUDA_ALLOC_CONF={setting}\n{FRAGMENTED}");
    assert!(!advises(&with("expandable_segments:True"), "expandable_segments:True"));
    assert!(!advises(&with("expandable_segments:True"), "max_split_size_mb:"));
    assert!(!advises(&with("max_split_size_mb:128"), "max_split_size_mb:"));
    assert!(advises(&with("max_split_size_mb:128"), "expandable_segments:True"));
    // Not on platforms that ignore it.
    assert!(!advises(
        &format!("C:\\Users\\me> python x.py\n{FRAGMENTED}"),
        "expandable_segments:True"
    ));
    // MPS: the variable is set, so setting it is not advised.
    let mps = "MPS backend out of memory (MPS allocated: 7.43 GB, other allocations: 1.46 GB, max allowed: 9.00 GB). Tried to allocate 529.21 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).";
    let last_resort = |text: &str| {
        explained(text).advice.iter().any(|a| a.action.starts_with("as a last resort"))
    };
    assert!(last_resort(mps));
    assert!(!last_resort(&format!(
        "os.environ['PYTORCH_MPS_HIGH_WATERMARK_RATIO'] = '0.0'\n{mps}"
    )));
}

#[test]
fn settings_in_the_log_are_linted() {
    let report = explain_log(&format!(
        "torch 2.8.0\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments=True python x.py\n{FRAGMENTED}"
    ));
    assert_eq!(report.torch_version, Some(vramwise_types::TorchVersion::new(2, 8)));
    assert_eq!(report.settings.len(), 1);
    assert_eq!(report.settings[0].text, "expandable_segments=True");
    assert_eq!(report.settings[0].line, 2);
    assert!(report.settings[0].lints.iter().any(|l| l.code.name() == "refused"));
    assert!(explain_log(FRAGMENTED).settings.is_empty());
}

#[test]
fn several_errors_are_told_apart_and_repeats_are_counted() {
    let other = FRAGMENTED.replace("2.00 GiB. GPU 0", "3.00 GiB. GPU 1");
    let log = format!("[rank0]: {FRAGMENTED}\nnoise\n[rank1]: {other}\n[rank0]: {FRAGMENTED}\n");
    let events = find_events(&log);
    assert_eq!(events.len(), 2);
    assert_eq!((events[0].rank, events[0].times, events[0].line), (Some(0), 2, 1));
    assert_eq!((events[1].rank, events[1].times, events[1].line), (Some(1), 1, 3));
}

#[test]
fn growth_over_several_errors_of_one_process_is_noticed() {
    let log: String = (0..4)
        .map(|i| FRAGMENTED.replace("12.00", &format!("{}.00", 12 + i)) + "\nretry\n")
        .collect();
    let found = explain_text(&log);
    assert_eq!(found.len(), 4);
    assert!(
        found[3].why.iter().any(|w| w.contains("grew from 12.00 GiB to 15.00 GiB")),
        "{:?}",
        found[3].why
    );
    let shrinking: String =
        (0..4).map(|i| FRAGMENTED.replace("12.00", &format!("{}.00", 12 - i))).collect();
    assert!(explain_text(&shrinking).iter().all(|e| e.why.iter().all(|w| !w.contains("grew"))));
}

#[test]
fn an_error_without_its_beginning_still_gives_what_is_left() {
    let at = FRAGMENTED.find("Including").unwrap();
    let events = find_events(&FRAGMENTED[at..]);
    assert_eq!(events.len(), 1);
    assert!(events[0].cut && events[0].numbers.tried.is_none());
    assert_eq!(events[0].numbers.allocated.map(|a| a.bytes), Some(12 * GIB));
}

#[test]
fn talk_about_the_error_is_no_error() {
    for text in [
        "",
        "all fine",
        "If you encounter CUDA out of memory, try a smaller batch",
        "to avoid CUDA out of memory errors we use checkpointing",
        "def catch(e): # handle CUDA out of memory",
        "except torch.cuda.OutOfMemoryError:",
        "Memory usage: 12.00 GiB of 24.00 GiB",
        "print(\"CUDA out of memory, retrying\")",
        "from torch.cuda import OutOfMemoryError",
        "CUDA out of memory errors can be avoided",
        "https://github.com/x/y/issues/1 CUDA semantics memory",
    ] {
        let found: Vec<_> = explain_text(text).into_iter().filter(|e| e.confidence > 0.5).collect();
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}

#[test]
fn other_texts_of_the_same_kinds_are_found() {
    for (text, kind, tried) in [
        (
            "NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 29.50 GiB total capacity; 26.48 GiB already allocated; 26.48 GiB current active; 1.02 GiB free; 27.02 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
            Kind::Npu,
            Some(2 * GIB),
        ),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", Kind::Cuda, None),
        ("RuntimeError: Invalid buffer size: 21.00 GB", Kind::Mps, Some(21 * GIB)),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.50 GiB for an array with shape (1, 2) and data type float64",
            Kind::Cpu,
            Some(15 * GIB / 2),
        ),
        ("[12.3] Out of memory: Killed process 1234 (python) total-vm:1kB", Kind::Cpu, None),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Kind::Cpu, None),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            Kind::Cublas,
            None,
        ),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Kind::Cudnn, None),
        (
            "node1:12:34 [3] include/alloc.h:153 NCCL WARN Cuda failure 2 'out of memory'",
            Kind::Nccl,
            None,
        ),
        ("RuntimeError: HIP error: out of memory", Kind::Driver, None),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16106127360 bytes.",
            Kind::OtherFramework,
            Some(15 * GIB),
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 512 bytes, limit set to: 0 bytes).",
            Kind::OtherFramework,
            Some(8 * GIB),
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB KV cache is needed, which is larger than the available KV cache memory (2.10 GiB).",
            Kind::Engine,
            Some(4 * GIB),
        ),
        (
            "\u{1b}[31mtorch.OutOfMemoryError\u{1b}[0m: CUDA out of memory. Tried to allocate \u{1b}[1m20.00 MiB\u{1b}[0m.",
            Kind::Cuda,
            Some(20 * MIB),
        ),
    ] {
        let events = find_events(text);
        assert_eq!(events.len(), 1, "{text}: {events:?}");
        assert_eq!(events[0].kind, kind, "{text}");
        assert_eq!(events[0].numbers.tried.map(|a| a.bytes), tried, "{text}");
    }
    let npu = &find_events(
        "NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 29.50 GiB total capacity; 26.48 GiB already allocated; 1.00 GiB of something new; 1.02 GiB free; 27.02 GiB reserved in total by PyTorch)",
    )[0];
    assert_eq!(npu.numbers.gpu, Some(3));
    assert_eq!(npu.numbers.reserved.map(|a| a.bytes), Some(29_012_504_084));
}

#[test]
fn enormous_lines_and_many_errors_take_no_time_to_speak_of() {
    let words = [
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ",
        "thcudacheckfail ",
        "cudafailure [1] ",
        "OutOfMemoryError ",
        "\u{1b}[31m",
        "[rank0]: ",
        "(gpu1;",
        "; 1.00GiB x",
    ];
    for word in words {
        for separator in [" ", "\n"] {
            let text = format!("{word}{separator}").repeat(10_000);
            explain_log(&text);
        }
    }
}

// ---- random messages
// --------------------------------------------------------------------------------------------

/// A size as PyTorch prints it (specification §10.1), with what a reader can know of it.
fn printed(bytes: u64) -> String {
    match bytes {
        0..=1024 => format!("{bytes} bytes"),
        1025..=1_048_576 => format!("{:.2} KiB", bytes as f64 / 1024.0),
        1_048_577..=1_073_741_824 => format!("{:.2} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[derive(Clone, Debug)]
struct Message {
    text: String,
    /// Label and bytes of what was put in.
    sizes: Vec<(&'static str, u64)>,
    gpu: Option<u32>,
    form: Form,
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..2048_u64, 2048..GIB, GIB..(200 * GIB)]
}

/// Messages of every format with random numbers.
fn message() -> impl Strategy<Value = Message> {
    let sizes = prop::collection::vec(size(), 8);
    (sizes, 0..8_u32, 0..9_usize, any::<[bool; 6]>()).prop_map(|(s, gpu, format, on)| {
        let p: Vec<String> = s.iter().map(|b| printed(*b)).collect();
        let device = ["CUDA", "HIP", "XPU"][format % 3];
        match format {
            // 2.1 and later.
            0..=4 => {
                let spelling = if on[0] { "capacity" } else { "capacty" };
                let mut text = format!("{device} out of memory. Tried to allocate {}. GPU {gpu} has a total {spelling} of {}", p[0], p[1]);
                let mut sizes = vec![("tried", s[0]), ("total", s[1])];
                if on[5] || device != "XPU" {
                    text += &format!(" of which {} is free", p[2]);
                    sizes.push(("free", s[2]));
                }
                text += ". ";
                if on[1] {
                    text += &format!("Process {} has {} memory in use. ", s[3] % 100_000, p[3]);
                }
                if on[2] {
                    text += &format!("Including non-PyTorch memory, this process has {} memory in use. ", p[4]);
                    sizes.push(("process_in_use", s[4]));
                }
                if on[3] {
                    text += &format!("{} allowed; ", p[5]);
                    sizes.push(("allowed", s[5]));
                }
                text += &format!("Of the allocated memory {} is allocated by PyTorch, ", p[6]);
                sizes.push(("allocated", s[6]));
                if on[4] {
                    text += &format!("with {} allocated in private pools (e.g., CUDA Graphs), ", p[3]);
                    sizes.push(("private_pools", s[3]));
                }
                text += &format!("and {} is reserved by PyTorch but unallocated.", p[7]);
                sizes.push(("reserved_unallocated", s[7]));
                text += match format {
                    0 => " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
                    1 => " If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
                    2 => " Please use `empty_cache` to release all unoccupied cached memory.",
                    _ => "",
                };
                Message { text, sizes, gpu: Some(gpu), form: Form::CachingAllocator }
            }
            // 2.0 and earlier.
            5 | 6 => {
                let mut text = format!("{device} out of memory. Tried to allocate {} (GPU {gpu}; {} total capacity; {} already allocated; {} free; ", p[0], p[1], p[2], p[3]);
                let mut sizes = vec![("tried", s[0]), ("total", s[1]), ("allocated", s[2]), ("free", s[3])];
                if format == 5 {
                    if on[3] {
                        text += &format!("{} allowed; ", p[5]);
                        sizes.push(("allowed", s[5]));
                    }
                    text += &format!("{} reserved in total by PyTorch)", p[4]);
                    sizes.push(("reserved", s[4]));
                    if on[0] {
                        text += " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF";
                    }
                } else {
                    text += &format!("{} cached)", p[4]);
                    sizes.push(("reserved_unallocated", s[4]));
                }
                Message { text, sizes, gpu: Some(gpu), form: Form::CachingAllocator }
            }
            7 => Message {
                text: format!("MPS backend out of memory (MPS allocated: {}, other allocations: {}, max allowed: {}). Tried to allocate {} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).", p[0], p[1], p[2], p[3]),
                sizes: vec![("allocated", s[0]), ("other", s[1]), ("allowed", s[2]), ("tried", s[3])],
                gpu: None,
                form: Form::Mps,
            },
            _ => Message {
                text: format!("Allocation on device {gpu} would exceed allowed memory. (out of memory)\nCurrently allocated     : {}\nRequested               : {}\nDevice limit            : {}\nFree (according to CUDA): {}\nPyTorch limit (set by user-supplied memory fraction)\n                        : {}", p[0], p[1], p[2], p[3], p[4]),
                sizes: vec![("allocated", s[0]), ("tried", s[1]), ("total", s[2]), ("free", s[3]), ("allowed", s[4])],
                gpu: Some(gpu),
                form: Form::StreamOrdered,
            },
        }
    })
}

fn labelled(numbers: &Numbers, label: &str) -> Option<Amount> {
    match label {
        "tried" => numbers.tried,
        "total" => numbers.total,
        "free" => numbers.free,
        "allocated" => numbers.allocated,
        "reserved" => numbers.reserved,
        "reserved_unallocated" => numbers.reserved_unallocated,
        "private_pools" => numbers.private_pools,
        "process_in_use" => numbers.process_in_use,
        "allowed" => numbers.allowed,
        "other" => numbers.other,
        _ => panic!("{label}"),
    }
}

/// Checks that a message is the one event of a text, with all its numbers.
fn check(message: &Message, text: &str) -> Result<(), TestCaseError> {
    let events = find_events(text);
    prop_assert_eq!(events.len(), 1, "{}\n{:?}", text, events);
    prop_assert_eq!(events[0].form, message.form, "{}", text);
    prop_assert_eq!(events[0].numbers.gpu, message.gpu, "{}", text);
    for (label, bytes) in &message.sizes {
        let got = labelled(&events[0].numbers, label);
        let near = got.is_some_and(|a| a.bytes.abs_diff(*bytes) <= a.slop + 1);
        prop_assert!(near, "{}: {} expected, not {:?}\n{}", label, bytes, got, text);
    }
    Ok(())
}

/// Breaks a text into lines of a width, in the middle of words, as a terminal does.
fn wrapped(text: &str, width: usize, prefix: &str) -> String {
    let mut out = String::from(prefix);
    for (i, ch) in text.chars().filter(|c| *c != '\n').enumerate() {
        if i > 0 && i % width == 0 {
            out.push('\n');
            out.push_str(prefix);
        }
        out.push(ch);
    }
    out
}

/// Breaks a text at spaces.
fn folded(text: &str, width: usize, prefix: &str, between: &str) -> String {
    let mut out = String::from(prefix);
    let mut column = 0;
    for word in text.split(' ') {
        if column > width {
            out.push('\n');
            out.push_str(between);
            out.push_str(prefix);
            column = 0;
        }
        out.push_str(word);
        out.push(' ');
        column += word.len() + 1;
    }
    out
}

proptest! {
    #[test]
    fn every_format_gives_its_numbers_back(message in message()) {
        check(&message, &message.text)?;
        check(&message, &format!("Traceback (most recent call last):\nRuntimeError: {}\nmore\n", message.text))?;
        explain_log(&message.text);
    }

    #[test]
    fn a_message_survives_wrapping_in_the_middle_of_words(message in message(), width in 24..120_usize) {
        check(&message, &wrapped(&message.text, width, ""))?;
        check(&message, &wrapped(&message.text, width, "[rank2]: "))?;
        check(&message, &wrapped(&message.text, width, "# "))?;
    }

    #[test]
    fn a_message_survives_folding_behind_a_logger(message in message(), width in 20..90_usize) {
        let text = message.text.replace('\n', " ");
        check(&message, &folded(&text, width, "(Worker pid=17) ERROR 10-14 12:32:47 worker.py:233] ", ""))?;
        check(&message, &folded(&text, width, "> ", ""))?;
    }

    #[test]
    fn a_message_survives_colours_and_other_writers(message in message(), width in 20..90_usize) {
        let text = message.text.replace('\n', " ");
        let between = "[rank0]: something else entirely\n  3%|▎         | 25/801 [00:08<04:11,  3.08it/s]\n";
        check(&message, &folded(&text, width, "[rank1]: ", between))?;
        let coloured = text.split(' ').map(|w| format!("\u{1b}[31m{w}\u{1b}[0m ")).collect::<String>();
        check(&message, &coloured)?;
    }

    #[test]
    fn a_cut_message_gives_no_wrong_number(message in message(), at in any::<prop::sample::Index>()) {
        let cut = at.index(message.text.len() + 1);
        prop_assume!(message.text.is_char_boundary(cut));
        for event in find_events(&message.text[..cut]) {
            for (label, bytes) in &message.sizes {
                let got = labelled(&event.numbers, label);
                let near = got.is_none_or(|a| a.bytes.abs_diff(*bytes) <= a.slop + 1);
                prop_assert!(near, "{}: {} expected, not {:?}\n{}", label, bytes, got, &message.text[..cut]);
            }
        }
        explain_log(&message.text[..cut]);
    }

    #[test]
    fn causes_and_advice_agree_with_the_arithmetic(message in message()) {
        if message.form != Form::CachingAllocator {
            return Ok(());
        }
        for e in explain_text(&message.text) {
            let n = &e.event.numbers;
            let bytes = |a: Option<Amount>| a.map_or(0, |a| a.bytes);
            let slack = bytes(n.free) + bytes(n.cached());
            let advised = |words: &str| {
                e.advice.iter().any(|a| a.action.contains(words) && !a.action.starts_with("do not"))
            };
            match e.cause {
                Cause::Fragmentation => prop_assert!(slack >= bytes(n.tried), "{}", message.text),
                Cause::RequestLargerThanCard => prop_assert!(bytes(n.tried) > bytes(n.total)),
                Cause::MemoryLimit => prop_assert!(n.allowed.is_some()),
                _ => prop_assert!(!advised("expandable_segments:True") && !advised("max_split_size_mb:")),
            }
            if e.why.iter().any(|w| w.starts_with("no allocator setting can help: slack")) {
                prop_assert!(slack < bytes(n.tried), "{}", message.text);
                prop_assert!(e.cause == Cause::TrueCapacity);
            }
            if let Some(limit) = e.advice.iter().find_map(|a| a.action.split("max_split_size_mb:").nth(1)) {
                let limit: u64 = limit.split(' ').next().unwrap().parse().unwrap();
                prop_assert!(limit >= 32);
            }
        }
    }

    #[test]
    fn two_messages_are_two_events(a in message(), b in message()) {
        prop_assume!(a.sizes != b.sizes || a.form != b.form);
        let events = find_events(&format!("RuntimeError: {}\nTraceback\nRuntimeError: {}\n", a.text, b.text));
        prop_assert_eq!(events.len(), 2);
        prop_assert_eq!((events[0].form, events[1].form), (a.form, b.form));
    }

    #[test]
    fn any_text_is_survived(text in "(.|\n|\r|\u{1b}|GPU 0 has |out of memory|Tried to allocate |MiB|; |\\(){0,80}") {
        let report = explain_log(&text);
        for e in &report.explanations {
            prop_assert!((0.0..=1.0).contains(&e.confidence));
            prop_assert!(!e.why.is_empty() && !e.advice.is_empty());
        }
    }
}

#[test]
fn figures_that_cannot_be_are_said_to_be_so() {
    let text = |tried: &str, total: &str, free: &str, held: &str| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total \
             capacity of {total} of which {free} is free. Including non-PyTorch memory, this process \
             has {held} memory in use. Of the allocated memory {held} is allocated by PyTorch, and \
             1.00 MiB is reserved by PyTorch but unallocated."
        )
    };
    let huge = explained(&text("17179869184.00 GiB", "8.00 GiB", "1.00 GiB", "6.00 GiB"));
    assert_eq!(huge.cause, Cause::AbsurdRequest);
    for odd in [
        text("0 bytes", "8.00 GiB", "1.00 GiB", "6.00 GiB"),
        text("2.00 GiB", "0 bytes", "0 bytes", "6.00 GiB"),
        text("2.00 GiB", "8.00 GiB", "1.00 GiB", "600.00 GiB"),
    ] {
        let found = explained(&odd);
        assert!(found.confidence <= 0.2, "{odd}: {found:?}");
        assert!(found.why.iter().any(|w| w.contains("cannot all be right")), "{odd}");
    }
    let below = explained(&text("2.00 GiB", "8.00 GiB", "-5.00 MiB", "6.00 GiB"));
    assert_eq!(below.event.numbers.allocated.map(|a| a.bytes), Some(6 << 30));
}

#[test]
fn a_larger_card_is_one_that_the_figures_ask_for() {
    let found = explained(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
         capacity of 24.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process \
         has 23.00 GiB memory in use. Of the allocated memory 22.80 GiB is allocated by PyTorch, and \
         10.00 MiB is reserved by PyTorch but unallocated.",
    );
    let card = found.advice.iter().find(|a| a.action.starts_with("take a card")).expect("advice");
    assert!(card.evidence.contains("24.99 GiB"), "{}", card.evidence);
}

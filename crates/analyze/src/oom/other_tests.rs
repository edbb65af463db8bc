//! Texts of everything that is not the caching allocator, with random numbers, mutated as logs do it.

use proptest::prelude::*;
use vramwise_types::{GIB, MIB};

use super::*;

/// A text and what must be read from it.
#[derive(Clone, Debug)]
struct Text {
    text: String,
    kind: Kind,
    form: Form,
    /// Label and bytes of what was put in.
    sizes: Vec<(&'static str, u64)>,
    gpu: Option<u32>,
}

/// Two decimals, as most of these print.
fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / GIB as f64)
}

fn numpy(bytes: u64) -> String {
    match bytes {
        0..GIB => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        _ => format!("{:.2} GiB", bytes as f64 / GIB as f64),
    }
}

/// A number with a comma between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One of each format; sizes are of 10 MiB to 200 GiB, so that units do not change under rounding.
fn text() -> impl Strategy<Value = Text> {
    let sizes = prop::collection::vec(10 * MIB..200 * GIB, 3);
    (sizes, 0..8_u32, 0..20_usize).prop_map(|(s, gpu, format)| {
        let (a, b, c) = (s[0], s[1], s[2]);
        let made = |text: String, kind, form, sizes| Text { text, kind, form, sizes, gpu: None };
        let tried = vec![("tried", a)];
        match format {
            0 => made(
                format!("RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate {a} bytes. Error code 12 (Cannot allocate memory)"),
                Kind::Cpu, Form::CpuAllocator, tried,
            ),
            1 => made(
                format!("RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate {a} bytes."),
                Kind::Cpu, Form::CpuAllocator, tried,
            ),
            2 => made(
                format!("numpy.core._exceptions._ArrayMemoryError: Unable to allocate {} for an array with shape ({}, 2) and data type float64", numpy(a), a / 16),
                Kind::Cpu, Form::HostAllocation, tried,
            ),
            3 => made(
                format!("RuntimeError: Invalid buffer size: {} GB", gib(a)),
                Kind::Mps, Form::MpsBuffer, tried,
            ),
            4 => made(
                format!("ValueError: Free memory on device ({}/{} GiB) on startup is less than desired GPU memory utilization (0.9, {} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.", gib(a), gib(b), gib(c)),
                Kind::Engine, Form::EngineStartup, vec![("free", a), ("total", b), ("allowed", c)],
            ),
            5 => made(
                format!("ValueError: To serve at least one request with the models's max seq len (32768), ({} GiB KV cache is needed, which is larger than the available KV cache memory ({} GiB). Try increasing `gpu_memory_utilization`.", gib(a), gib(b)),
                Kind::Engine, Form::EngineCache, vec![("tried", a), ("free", b)],
            ),
            6 => made(
                format!("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {a} bytes."),
                Kind::OtherFramework, Form::Foreign, tried,
            ),
            7 => made(
                format!("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating {} bytes (allocated so far: {} bytes, limit set to: 0 bytes).", grouped(a), grouped(b)),
                Kind::OtherFramework, Form::Foreign, vec![("tried", a), ("allocated", b)],
            ),
            8 => Text {
                text: format!("ggml_backend_cuda_buffer_type_alloc_buffer: allocating {:.2} MiB on device {gpu}: cudaMalloc failed: out of memory", a as f64 / MIB as f64),
                kind: Kind::OtherFramework, form: Form::Foreign, sizes: tried, gpu: Some(gpu),
            },
            9 => made(
                format!("failed to allocate {:.2}G ({a} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", a as f64 / GIB as f64),
                Kind::OtherFramework, Form::Foreign, tried,
            ),
            10 => made(
                format!("ResourceExhaustedError: OOM when allocating tensor with shape[{},1024,256] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", a >> 20),
                Kind::OtherFramework, Form::Foreign, vec![("tried", (a >> 20) << 20)],
            ),
            11 => made("RuntimeError: CUDA error: out of memory".to_owned(), Kind::Driver, Form::DriverError, vec![]),
            12 => made("RuntimeError: HIP error: out of memory".to_owned(), Kind::Driver, Form::DriverError, vec![]),
            13 => made("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED".to_owned(), Kind::Cudnn, Form::LibraryStatus, vec![]),
            14 => made("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`".to_owned(), Kind::Cublas, Form::LibraryStatus, vec![]),
            15 => made("node1:12:34 [3] include/alloc.h:153 NCCL WARN Cuda failure 2 'out of memory'".to_owned(), Kind::Nccl, Form::NcclWarning, vec![]),
            16 => made("terminate called after throwing an instance of 'std::bad_alloc'".to_owned(), Kind::Cpu, Form::HostAllocation, vec![]),
            17 => made(format!("[{}.1] Out of memory: Killed process {} (python) total-vm:{}kB, anon-rss:1kB", a >> 30, a % 90_000, b >> 10), Kind::Cpu, Form::Killed, vec![]),
            18 => made("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. insufficient shared memory (shm)".to_owned(), Kind::Cpu, Form::SharedMemory, vec![]),
            _ => made("RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)".to_owned(), Kind::Xpu, Form::LevelZero, vec![]),
        }
    })
}

fn value(n: &Numbers, label: &str) -> Option<Amount> {
    match label {
        "tried" => n.tried,
        "free" => n.free,
        "total" => n.total,
        "allowed" => n.allowed,
        _ => n.allocated,
    }
}

/// The text is found once, as what it is, with its numbers.
fn check(wanted: &Text, text: &str) -> Result<(), TestCaseError> {
    let events = find_events(text);
    prop_assert_eq!(events.len(), 1, "{}\n{:?}", text, events);
    let event = &events[0];
    prop_assert_eq!((event.kind, event.form), (wanted.kind, wanted.form), "{}", text);
    if wanted.gpu.is_some() {
        prop_assert_eq!(event.numbers.gpu, wanted.gpu, "{}", text);
    }
    for (label, bytes) in &wanted.sizes {
        let got = value(&event.numbers, label);
        let near = got.is_some_and(|a| a.bytes.abs_diff(*bytes) <= a.slop + 1);
        prop_assert!(near, "{}: {} expected, not {:?}\n{}", label, bytes, got, text);
    }
    Ok(())
}

/// Broken at spaces into lines with a prefix, other writers between them.
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
    fn other_formats_give_their_numbers_back(text in text()) {
        check(&text, &text.text)?;
        check(&text, &format!("Traceback (most recent call last):\n  File \"a.py\", line 3\n{}\nbye\n", text.text))?;
        check(&text, &format!("学習を開始します\n{}\nEntraînement terminé\n", text.text))?;
    }

    #[test]
    fn other_formats_survive_colours_and_carriage_returns(text in text()) {
        let coloured: String =
            text.text.split(' ').map(|w| format!("\u{1b}[31m{w}\u{1b}[0m ")).collect();
        check(&text, &coloured)?;
        check(&text, &format!("  3%|▎         | 25/801 [00:08<04:11,  3.08it/s]\r{}\r\n", text.text))?;
    }

    #[test]
    fn other_formats_survive_folding_behind_a_logger(text in text(), width in 30..90_usize) {
        // Texts without numbers are short enough to stand on one line; other frameworks' texts are only
        // kept apart from PyTorch's. Broken over lines, a part of one can be found a second time.
        if text.form == Form::Foreign || text.sizes.is_empty() {
            return Ok(());
        }
        check(&text, &folded(&text.text, width, "[rank1]: ", ""))?;
        check(&text, &folded(&text.text, width, "2026-03-01 12:34:56,789 ERROR ", ""))?;
    }

    #[test]
    fn other_formats_that_are_cut_give_no_wrong_number(text in text(), at in any::<prop::sample::Index>()) {
        let cut = at.index(text.text.len() + 1);
        for event in find_events(&text.text[..cut]) {
            for (label, bytes) in &text.sizes {
                let got = value(&event.numbers, label);
                let near = got.is_none_or(|a| a.bytes.abs_diff(*bytes) <= a.slop + 1);
                prop_assert!(near, "{}: {} expected, not {:?}\n{}", label, bytes, got, &text.text[..cut]);
            }
        }
        for e in explain_text(&text.text[..cut]) {
            prop_assert!((0.0..=1.0).contains(&e.confidence) && !e.why.is_empty());
        }
    }

    #[test]
    fn no_setting_of_the_allocator_is_advised_for_other_memory(text in text()) {
        for e in explain_text(&text.text) {
            if matches!(e.event.kind, Kind::Cpu | Kind::OtherFramework | Kind::Mps) {
                let sets = |a: &Advice| a.action.starts_with("set ") && a.action.contains("ALLOC_CONF");
                prop_assert!(!e.advice.iter().any(sets), "{:?}", e.advice);
            }
        }
    }

    #[test]
    fn a_time_before_the_error_is_its_time(text in text(), second in 0..86_400_i64) {
        let clock = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
        let log = format!("2026-03-01 {clock},250 INFO step 3\n{}\n", text.text);
        let stamps: Vec<_> = explain_text(&log).iter().filter_map(|e| e.stamp).collect();
        // 2026-03-01 is day 20,513 since 1970.
        let expected = (20_513 * 86_400 + second) * 1_000_000 + 250_000;
        prop_assert!(stamps.iter().all(|s| s.time_us == expected && s.has_year && !s.has_zone));
        prop_assert!(!stamps.is_empty());
    }
}

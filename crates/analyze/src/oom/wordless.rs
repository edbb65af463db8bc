//! Causes of texts without the caching allocator's numbers: what the words alone say.

use vramwise_types::Human;

use super::cause::Cause;
use super::diagnose::{Case, Diagnosis};
use super::event::{Form, Kind};
use super::formats::neighbours;
use super::knowledge::{self as known, Fact};

/// The cause that the form of the text tells.
pub(super) fn diagnose(case: &Case<'_>) -> Diagnosis {
    let found = |cause, confidence, why: String, facts: &[Fact]| Diagnosis {
        cause,
        confidence,
        why: vec![why],
        facts: facts.to_vec(),
    };
    let event = case.event;
    let words = event.words;
    let asked = case.account.tried.map(|t| Human(t).to_string());
    match event.form {
        Form::BeyondOneExabyte => found(
            Cause::AbsurdRequest,
            0.97,
            "more than 2^60 bytes in one tensor: PyTorch refuses before it asks the driver".to_owned(),
            &[],
        ),
        Form::RuntimeHeap => found(
            Cause::RuntimeHeap,
            0.95,
            format!("'{words}' does not come from PyTorch's CUDA allocator: {} reached its limit", whose(words)),
            &[],
        ),
        Form::CpuAllocator => found(
            Cause::HostMemory,
            0.9,
            match &asked {
                Some(asked) => format!("{asked} of host memory was refused by the operating system; no GPU is involved"),
                None => "the CPU allocator failed; no GPU is involved".to_owned(),
            },
            &[],
        ),
        Form::HostAllocation => found(
            Cause::HostMemory,
            0.75,
            match (&asked, neighbours::family(words)) {
                (Some(asked), _) => format!("{asked} of host memory was refused ('{words}'), not by PyTorch's CUDA allocator"),
                (None, Some(family)) => format!("'{words}' does not come from PyTorch's CUDA allocator: {} ran out", family.whose),
                (None, None) => format!("'{words}' is about host memory, and does not come from PyTorch's CUDA allocator"),
            },
            &[],
        ),
        Form::PinThread => found(
            Cause::PinnedMemory,
            0.4,
            "the thread that copies batches into pinned memory raised an error; the lines behind it carry the reason, which may be host memory, a device error or a worker's own exception".to_owned(),
            &[],
        ),
        Form::Killed => found(
            Cause::ProcessKilled,
            0.9,
            match neighbours::family(words) {
                Some(family) => format!("'{words}' does not come from PyTorch's CUDA allocator: {} ran out, and the process was ended for it", family.whose),
                None => format!("'{words}' is the system's word for it, not PyTorch's CUDA allocator's"),
            },
            &[],
        ),
        Form::Signal => found(
            Cause::ProcessKilled,
            0.6,
            format!("'{words}' means that signal 9 ended {}: most often the system's answer to a lack of host memory, but anybody may send it; PyTorch's CUDA allocator raises an error and ends no process", if whose(words).contains("compiler") { "a compiler, which takes host memory" } else { "the process" }),
            &[],
        ),
        Form::SharedMemory => found(
            Cause::HostMemory,
            0.85,
            format!("'{words}' is about /dev/shm, through which data loader workers hand over their batches"),
            &[],
        ),
        Form::KernelResources => found(
            Cause::NotOutOfMemory,
            0.9,
            format!("'{words}': a kernel needs more of it than a multiprocessor has; the card's memory is not involved"),
            &[],
        ),
        Form::NcclWarning => found(
            Cause::OutsidePytorch,
            0.75,
            "NCCL asked the driver for its buffers and found the card full".to_owned(),
            &[known::DIRECT_USERS],
        ),
        Form::LibraryStatus => library(case),
        Form::DriverError | Form::Thc => found(
            Cause::OutsidePytorch,
            0.6,
            format!("'{words}' comes from the driver without figures: PyTorch's allocator was not the one that asked, or the call that failed was an earlier one"),
            &[known::ASYNC_ERRORS, known::CONTEXT],
        ),
        Form::DriverResult => found(
            Cause::OutsidePytorch,
            0.75,
            "result 2 is the driver's out-of-memory code; the memory was asked for outside PyTorch's allocator".to_owned(),
            &[],
        ),
        Form::LevelZero => found(
            Cause::OutsidePytorch,
            0.6,
            format!("'{words}' comes from Intel's runtime without figures"),
            &[known::XPU_SINGLE],
        ),
        Form::NvmlAssertion => found(
            Cause::MaskedError,
            0.85,
            "the figures of the error itself are lost".to_owned(),
            &[known::NVML_MASKS],
        ),
        Form::ExpandableAssertion => found(
            Cause::SettingsConflict,
            0.9,
            "the assertion says that a block of an expandable segment met the rules of max_split_size_mb".to_owned(),
            &[known::EXPANDABLE_SPLIT_ASSERT],
        ),
        Form::ExpandableDriverError => found(
            Cause::NotOutOfMemory,
            0.7,
            format!("'{words}' is not the driver's out-of-memory code; it is what expandable segments meet on platforms whose driver cannot share or map memory for them{}", if case.around.wsl { ", such as the WSL2 of this log" } else { " (WSL2, some virtual GPUs)" }),
            &[known::EXPANDABLE_PLATFORMS],
        ),
        Form::NameOnly => found(
            Cause::MaskedError,
            0.5,
            "a wrapper names the exception but not its text; the error with its figures stands in the log of the process that raised it".to_owned(),
            &[],
        ),
        Form::EngineStartup => startup(case),
        Form::EngineCache => found(
            Cause::EngineBudget,
            0.85,
            match (case.account.tried, case.account.free) {
                (Some(needed), Some(available)) => format!("one request needs {} of key-value cache, {} is left for it", Human(needed), Human(available)),
                _ => "nothing is left for the key-value cache after weights and activations".to_owned(),
            },
            &[],
        ),
        Form::MpsBuffer => found(
            Cause::SingleAllocationLimit,
            0.8,
            format!("Metal refuses single buffers above a limit; {} was asked for", asked.unwrap_or_default()),
            &[],
        ),
        Form::Foreign => found(
            Cause::OtherFramework,
            0.8,
            match (&asked, neighbours::family(words)) {
                (Some(asked), Some(family)) => format!("not PyTorch's CUDA allocator: {} was refused {asked} ('{words}')", family.whose),
                (None, Some(family)) => format!("'{words}' does not come from PyTorch's CUDA allocator: it is {} that found no memory", family.whose),
                (Some(asked), None) => format!("{asked} was refused to another framework ('{words}'); PyTorch's settings do not apply to it"),
                (None, None) => format!("'{words}' is another framework's error, not PyTorch's CUDA allocator's"),
            },
            &[],
        ),
        Form::Mention if !event.numbers.impossible.is_empty() => found(
            Cause::AbsurdRequest,
            0.8,
            "the size is 2^64 bytes or the like: no tensor's".to_owned(),
            &[],
        ),
        Form::CachingAllocator | Form::Mention | Form::StreamOrdered | Form::Mps => found(
            Cause::Unknown,
            0.3,
            "the text says that memory ran out, but no figure of the error is left".to_owned(),
            &[],
        ),
    }
}

/// Whose memory it was.
fn whose(words: &str) -> &'static str {
    neighbours::family(words).map_or("another program", |family| family.whose)
}

fn library(case: &Case<'_>) -> Diagnosis {
    let name = match case.event.kind {
        Kind::Cublas => "cuBLAS",
        Kind::Cudnn => "cuDNN",
        _ => neighbours::family(case.event.words).map_or("the library", |family| family.whose),
    };
    let doubtful = ["NOT_INITIALIZED", "nable to find"];
    let certain = !doubtful.iter().any(|words| case.event.words.contains(words));
    let (confidence, fact) =
        if certain { (0.75, known::CUBLAS_WORKSPACE) } else { (0.5, known::CONTEXT) };
    Diagnosis {
        cause: Cause::OutsidePytorch,
        confidence,
        why: vec![if certain {
            format!(
                "{name} could not allocate for itself: the card was full, and PyTorch's cache may be what filled it"
            )
        } else {
            format!(
                "{name} could not start or found no way to compute, which a full card causes most often; a broken installation or an operation that it does not support are others"
            )
        }],
        facts: if case.event.kind == Kind::Cublas { vec![fact] } else { vec![known::DIRECT_USERS] },
    }
}

/// vLLM at start-up: the budget is a part of the whole card, and not that much is free.
fn startup(case: &Case<'_>) -> Diagnosis {
    let a = &case.account;
    let mut why = Vec::new();
    if let (Some(free), Some(total)) = (a.free, a.total) {
        why.push(format!(
            "{} total - {} free = {} is held by other processes before this one starts",
            Human(total),
            Human(free),
            Human(total.saturating_sub(free))
        ));
    }
    if let (Some(free), Some(desired)) = (a.free, a.allowed) {
        why.push(format!(
            "the engine wants {}, {} more than is free",
            Human(desired),
            Human(desired.saturating_sub(free))
        ));
    }
    if why.is_empty() {
        why.push("less is free than the engine's memory utilization asks for".to_owned());
    }
    Diagnosis { cause: Cause::EngineBudget, confidence: 0.9, why, facts: Vec::new() }
}

//! Texts without numbers: status codes, driver errors, assertions, wrappers.
//!
//! A phrase counts where it is an error's own text. Advice that merely names the error ("if you
//! encounter CUDA out of memory, …") is told apart by the words in front of it, see [`is_talk`].

use crate::oom::event::{Form, Kind};

/// A phrase in compact lower-case text.
pub(in crate::oom) struct Phrase {
    pub(in crate::oom) text: &'static str,
    /// Another phrase that has to stand in the same or the next line.
    pub(in crate::oom) with: Option<&'static str>,
    pub(in crate::oom) kind: Kind,
    pub(in crate::oom) form: Form,
    /// As a person would quote it.
    pub(in crate::oom) words: &'static str,
}

const fn phrase(text: &'static str, kind: Kind, form: Form, words: &'static str) -> Phrase {
    Phrase { text, with: None, kind, form, words }
}

const fn pair(
    text: &'static str,
    with: &'static str,
    kind: Kind,
    form: Form,
    words: &'static str,
) -> Phrase {
    Phrase { text, with: Some(with), kind, form, words }
}

/// All phrases; where one begins like another, the longer stands first.
pub(in crate::oom) const PHRASES: &[Phrase] = &[
    phrase(
        "cublas_status_alloc_failed",
        Kind::Cublas,
        Form::LibraryStatus,
        "CUBLAS_STATUS_ALLOC_FAILED",
    ),
    phrase(
        "hipblas_status_alloc_failed",
        Kind::Cublas,
        Form::LibraryStatus,
        "HIPBLAS_STATUS_ALLOC_FAILED",
    ),
    phrase(
        "rocblas_status_memory_error",
        Kind::Cublas,
        Form::LibraryStatus,
        "rocblas_status_memory_error",
    ),
    phrase(
        "cudnn_status_alloc_failed",
        Kind::Cudnn,
        Form::LibraryStatus,
        "CUDNN_STATUS_ALLOC_FAILED",
    ),
    phrase(
        "cudnn_status_not_initialized",
        Kind::Cudnn,
        Form::LibraryStatus,
        "CUDNN_STATUS_NOT_INITIALIZED",
    ),
    phrase(
        "unabletofindavalidcudnnalgorithmtorunconvolution",
        Kind::Cudnn,
        Form::LibraryStatus,
        "Unable to find a valid cuDNN algorithm to run convolution",
    ),
    phrase(
        "getwasunabletofindanenginetoexecutethiscomputation",
        Kind::Cudnn,
        Form::LibraryStatus,
        "GET was unable to find an engine to execute this computation",
    ),
    phrase("miopenstatusallocfailed", Kind::Cudnn, Form::LibraryStatus, "miopenStatusAllocFailed"),
    phrase(
        "cusparse_status_alloc_failed",
        Kind::Library,
        Form::LibraryStatus,
        "CUSPARSE_STATUS_ALLOC_FAILED",
    ),
    phrase(
        "cusolver_status_alloc_failed",
        Kind::Library,
        Form::LibraryStatus,
        "CUSOLVER_STATUS_ALLOC_FAILED",
    ),
    phrase("cufft_alloc_failed", Kind::Library, Form::LibraryStatus, "CUFFT_ALLOC_FAILED"),
    pair(
        "cublas_status_not_initialized",
        "cublascreate",
        Kind::Cublas,
        Form::LibraryStatus,
        "CUBLAS_STATUS_NOT_INITIALIZED",
    ),
    pair(
        "cudafailure",
        "'outofmemory'",
        Kind::Nccl,
        Form::NcclWarning,
        "NCCL WARN Cuda failure 'out of memory'",
    ),
    phrase("failedtocudacalloc", Kind::Nccl, Form::NcclWarning, "Failed to CUDA calloc"),
    phrase(
        "outofresource:sharedmemory,required:",
        Kind::Library,
        Form::KernelResources,
        "out of resource: shared memory",
    ),
    phrase(
        "outofresource:threads,required:",
        Kind::Library,
        Form::KernelResources,
        "out of resource: threads",
    ),
    phrase(
        "outofresource:registers,required:",
        Kind::Library,
        Form::KernelResources,
        "out of resource: registers",
    ),
    phrase(
        "outofresource:tensormemory,required:",
        Kind::Library,
        Form::KernelResources,
        "out of resource: tensor memory",
    ),
    pair(
        "hipfailure",
        "'outofmemory'",
        Kind::Nccl,
        Form::NcclWarning,
        "NCCL WARN HIP failure 'out of memory'",
    ),
    pair(
        "nvml_success==r",
        "internalassertfailed",
        Kind::Cuda,
        Form::NvmlAssertion,
        "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
    ),
    pair(
        "!block->expandable_segment_",
        "internalassertfailed",
        Kind::Cuda,
        Form::ExpandableAssertion,
        "!block->expandable_segment_ INTERNAL ASSERT FAILED",
    ),
    phrase(
        "cudadrivererror:outofmemory",
        Kind::Driver,
        Form::DriverError,
        "CUDA driver error: out of memory",
    ),
    phrase(
        "cudadrivererror:unknownerror",
        Kind::Driver,
        Form::ExpandableDriverError,
        "CUDA driver error: unknown error",
    ),
    phrase(
        "cudadrivererror:invalidargument",
        Kind::Driver,
        Form::ExpandableDriverError,
        "CUDA driver error: invalid argument",
    ),
    phrase(
        "cudadrivererror:operationnotsupported",
        Kind::Driver,
        Form::ExpandableDriverError,
        "CUDA driver error: operation not supported",
    ),
    phrase(
        "cudadrivererror:invaliddeviceordinal",
        Kind::Driver,
        Form::ExpandableDriverError,
        "CUDA driver error: invalid device ordinal",
    ),
    phrase(
        "curesulterrorresult=2file",
        Kind::Library,
        Form::DriverResult,
        "CUresult error result=2",
    ),
    phrase(
        "tritonerror[cuda]:outofmemory",
        Kind::Library,
        Form::DriverError,
        "Triton Error [CUDA]: out of memory",
    ),
    phrase("cudaerror:outofmemory", Kind::Driver, Form::DriverError, "CUDA error: out of memory"),
    phrase("hiperror:outofmemory", Kind::Driver, Form::DriverError, "HIP error: out of memory"),
    phrase(
        "cudaerror2:outofmemory",
        Kind::Driver,
        Form::DriverError,
        "CUDA error 2: out of memory",
    ),
    phrase("hiperroroutofmemory", Kind::Driver, Form::DriverError, "hipErrorOutOfMemory"),
    phrase(
        "cudaruntimeerror(2):outofmemory",
        Kind::Driver,
        Form::Thc,
        "cuda runtime error (2) : out of memory",
    ),
    phrase(
        "cudaruntimeerr(2):outofmemory",
        Kind::Driver,
        Form::Thc,
        "cuda runtime error (2) : out of memory",
    ),
    pair(
        "thcudacheckfail",
        "error=2:outofmemory",
        Kind::Driver,
        Form::Thc,
        "THCudaCheck FAIL … error=2 : out of memory",
    ),
    phrase(
        "cudaerrormemoryallocation",
        Kind::Driver,
        Form::DriverError,
        "cudaErrorMemoryAllocation",
    ),
    phrase("cuda_error_out_of_memory", Kind::Driver, Form::DriverError, "CUDA_ERROR_OUT_OF_MEMORY"),
    phrase(
        "ze_result_error_out_of_device_memory",
        Kind::Xpu,
        Form::LevelZero,
        "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    ),
    // The whole before its parts, which would be found a second time in it.
    phrase(
        "nativeapireturns:39(ur_result_error_out_of_device_memory",
        Kind::Xpu,
        Form::LevelZero,
        "Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    ),
    phrase(
        "ur_result_error_out_of_device_memory",
        Kind::Xpu,
        Form::LevelZero,
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    ),
    phrase(
        "ur_result_error_out_of_resources",
        Kind::Xpu,
        Form::LevelZero,
        "UR_RESULT_ERROR_OUT_OF_RESOURCES",
    ),
    phrase(
        "nativeapireturns:-5(pi_error_o",
        Kind::Xpu,
        Form::LevelZero,
        "Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)",
    ),
    phrase("nativeapireturns:-5", Kind::Xpu, Form::LevelZero, "Native API returns: -5"),
    phrase("nativeapireturns:39", Kind::Xpu, Form::LevelZero, "Native API returns: 39"),
    phrase(
        "raytaskerror(outofmemoryerror)",
        Kind::Cuda,
        Form::NameOnly,
        "RayTaskError(OutOfMemoryError)",
    ),
];

/// Whether the exception's name at this place is being raised or reported, rather than imported or
/// caught.
pub(in crate::oom) fn is_raised(text: &[u8], at: usize) -> bool {
    let start = ["torch.cuda.", "torch."]
        .iter()
        .find(|p| text[..at].ends_with(p.as_bytes()))
        .map_or(at, |p| at - p.len());
    let before = &text[..start];
    let after = text.get(at + "outofmemoryerror".len());
    let near = &before[before.len().saturating_sub(60)..];
    let code = ["except", "import", "isinstance"]
        .iter()
        .any(|w| near.windows(w.len()).any(|b| b == w.as_bytes()));
    !code
        && !near.ends_with(b"raise")
        && !before.last().is_some_and(u8::is_ascii_alphanumeric)
        && after.is_none_or(|b| matches!(b, b':' | b')' | b'.' | b',' | b'"' | b'\''))
}

/// Whether a line has the exception's name as PyTorch's: alone or behind `torch.`, and not as the name of
/// another program's (`java.lang.OutOfMemoryError`, `ray.exceptions.OutOfMemoryError`).
pub(in crate::oom) fn names_pytorch_s(line: &str) -> bool {
    line.match_indices("OutOfMemoryError").any(|(at, _)| {
        let before = &line[..at];
        let path = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "._".contains(c));
        let path = &before[path.len()..];
        !path.contains('.') || path.starts_with("torch.")
    })
}

/// Whether a line is a program's text rather than its output.
pub(in crate::oom) fn is_code(text: &[u8]) -> bool {
    let has = |w: &str| text.windows(w.len()).filter(|b| *b == w.as_bytes()).count();
    ["print(", "instr(", "logger.", "logging.", "raiseruntimeerror", "warnings.warn"]
        .iter()
        .any(|w| has(w) > 0)
        // An assertion that failed is output.
        || has("assert") > has("assertion")
}

/// Words in front of (or behind) a mention that make it talk about the error rather than the error.
const TALK_BEFORE: &[&str] = &[
    "if",
    "avoid",
    "prevent",
    "encounter",
    "when",
    "incase",
    "cause",
    "causes",
    "causing",
    "fix",
    "fixes",
    "fixing",
    "solve",
    "reduce",
    "youget",
    "yousee",
    "get",
    "getting",
    "got",
    "forthe",
    "toa",
    "a",
    "an",
    "the",
    "of",
    "with",
    "without",
    "handle",
    "handles",
    "catch",
    "about",
    "possible",
    "potential",
    "such",
    "against",
    "to",
    "from",
    "on",
    "like",
];

/// Whether compact text in front of a mention ends in words that only talk about it.
pub(in crate::oom) fn is_talk(before: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(24)..];
    TALK_BEFORE.iter().any(|w| near.ends_with(w.as_bytes()))
}

//! What an out-of-memory text says, before anything is concluded from it.

use vramwise_types::TorchVersion;

use super::amount::Amount;

/// Whose memory ran out, or who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// PyTorch's CUDA caching allocator.
    Cuda,
    /// The same on AMD cards.
    Hip,
    /// The same on Intel cards.
    Xpu,
    /// The same on Ascend cards (`torch_npu`).
    Npu,
    /// A fork for another accelerator that prints the same text (MLU, MUSA, DCU and others).
    OtherAccelerator,
    /// Apple's Metal back end.
    Mps,
    /// PyTorch's `cudaMallocAsync` back end.
    CudaMallocAsync,
    /// Host memory: PyTorch's CPU allocator, pinned memory, the operating system's killer.
    Cpu,
    /// The driver or the runtime, outside the caching allocator.
    Driver,
    /// cuBLAS (or hipBLAS).
    Cublas,
    /// cuDNN (or MIOpen).
    Cudnn,
    /// NCCL (or RCCL).
    Nccl,
    /// Another GPU library of the process: cuSPARSE, Triton, torch_memory_saver and the like.
    Library,
    /// Another framework's error in the same log: TensorFlow, JAX, CuPy, ggml.
    OtherFramework,
    /// A serving engine that refuses to start for lack of memory (vLLM, SGLang).
    Engine,
}

impl Kind {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Cuda => "cuda",
            Kind::Hip => "hip",
            Kind::Xpu => "xpu",
            Kind::Npu => "npu",
            Kind::OtherAccelerator => "other_accelerator",
            Kind::Mps => "mps",
            Kind::CudaMallocAsync => "cuda_malloc_async",
            Kind::Cpu => "cpu",
            Kind::Driver => "driver",
            Kind::Cublas => "cublas",
            Kind::Cudnn => "cudnn",
            Kind::Nccl => "nccl",
            Kind::Library => "library",
            Kind::OtherFramework => "other_framework",
            Kind::Engine => "engine",
        }
    }

    /// Whether PyTorch's caching allocator raised it and so its settings could matter.
    pub const fn is_caching_allocator(self) -> bool {
        matches!(self, Kind::Cuda | Kind::Hip | Kind::Xpu | Kind::Npu | Kind::OtherAccelerator)
    }
}

/// Which text it is, more exactly than the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// The caching allocator's error with its numbers.
    CachingAllocator,
    /// "more than 1EB".
    BeyondOneExabyte,
    /// MPS with its numbers.
    Mps,
    /// MPS refuses a single buffer.
    MpsBuffer,
    /// `DefaultCPUAllocator`.
    CpuAllocator,
    /// Another refusal of host memory (`std::bad_alloc`, NumPy, MemoryError).
    HostAllocation,
    /// The pinned-memory thread of a data loader.
    PinThread,
    /// The heap of another language's runtime (Java, JavaScript) reached its limit.
    RuntimeHeap,
    /// The operating system or the container ended the process.
    Killed,
    /// A process ended by a signal that the system sends when memory runs out, among other reasons.
    Signal,
    /// The shared memory of the container.
    SharedMemory,
    /// A kernel that needs more of a multiprocessor's own memory than there is.
    KernelResources,
    /// The lines of the `cudaMallocAsync` back end.
    StreamOrdered,
    /// "CUDA error: out of memory" and its relatives.
    DriverError,
    /// The old runtime check of PyTorch 0.1 to 1.x.
    Thc,
    /// A library's status code for "allocation failed".
    LibraryStatus,
    /// NCCL's warning.
    NcclWarning,
    /// The NVML assertion that hides an out-of-memory error.
    NvmlAssertion,
    /// The assertion of expandable segments together with max_split_size_mb.
    ExpandableAssertion,
    /// A driver error of expandable segments that is no lack of memory.
    ExpandableDriverError,
    /// `CUresult error result=2` and the like.
    DriverResult,
    /// SYCL or Level Zero.
    LevelZero,
    /// The name of the exception in a wrapper, without its text.
    NameOnly,
    /// Words about running out of memory that are no error's own text.
    Mention,
    /// vLLM's check at start-up.
    EngineStartup,
    /// Room for the key-value cache is missing.
    EngineCache,
    /// TensorFlow, JAX, CuPy and others.
    Foreign,
}

/// Another process on the card, as the text lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessUse {
    /// The process number in the namespace of the driver, if it fits one.
    pub pid: Option<u64>,
    /// Its memory; nothing where the driver could not tell.
    pub used: Option<Amount>,
}

/// The numbers of one text. A missing one was not printed, was cut off, or is impossible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// What was asked of the device: the segment, not the tensor.
    pub tried: Option<Amount>,
    /// Total capacity as the driver or the library reports it.
    pub total: Option<Amount>,
    /// Free on the device.
    pub free: Option<Amount>,
    /// Allocated by PyTorch (with free blocks of private pools, where those are printed).
    pub allocated: Option<Amount>,
    /// Reserved by PyTorch, where printed as such.
    pub reserved: Option<Amount>,
    /// Reserved and not allocated, where printed as such.
    pub reserved_unallocated: Option<Amount>,
    /// Free blocks of private pools.
    pub private_pools: Option<Amount>,
    /// All that this process holds, outside PyTorch too.
    pub process_in_use: Option<Amount>,
    /// The limit of the memory fraction (or of MPS).
    pub allowed: Option<Amount>,
    /// MPS: memory held outside the allocator.
    pub other: Option<Amount>,
    /// Forks: bytes of blocks that are active.
    pub active: Option<Amount>,
    /// Number of the device.
    pub gpu: Option<u32>,
    /// Other processes listed.
    pub processes: Vec<ProcessUse>,
    /// Labels whose number was impossible (2^64 and the like).
    pub impossible: Vec<&'static str>,
}

impl Numbers {
    /// Whether any size is known.
    pub fn any(&self) -> bool {
        self.tried.is_some()
            || self.total.is_some()
            || self.allocated.is_some()
            || self.free.is_some()
    }

    /// Reserved by PyTorch, printed or computed.
    pub fn reserved_or_sum(&self) -> Option<Amount> {
        self.reserved.or_else(|| {
            let (a, u) = (self.allocated?, self.reserved_unallocated?);
            Some(Amount {
                bytes: a.bytes.saturating_add(u.bytes),
                slop: a.slop.saturating_add(u.slop),
            })
        })
    }

    /// Reserved and not allocated, printed or computed.
    pub fn cached(&self) -> Option<Amount> {
        self.reserved_unallocated.or_else(|| {
            let (r, a) = (self.reserved?, self.allocated?);
            Some(Amount {
                bytes: r.bytes.saturating_sub(a.bytes),
                slop: r.slop.saturating_add(a.slop),
            })
        })
    }
}

/// The releases that print such a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// First release.
    pub from: TorchVersion,
    /// Last release, if later ones print something else.
    pub to: Option<TorchVersion>,
}

impl std::fmt::Display for Age {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to {
            Some(to) if to == self.from => write!(f, "PyTorch {to}"),
            Some(to) => write!(f, "PyTorch {} to {to}", self.from),
            None => write!(f, "PyTorch {} or later", self.from),
        }
    }
}

/// The hint at the end of the caching allocator's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Recommends max_split_size_mb (up to 2.1).
    MaxSplitSize,
    /// Recommends expandable segments (2.2 and later).
    ExpandableSegments,
}

/// One out-of-memory text found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who ran out.
    pub kind: Kind,
    /// Which text.
    pub form: Form,
    /// Line of the log where the text begins, from 1.
    pub line: usize,
    /// Tag of the process that wrote it, such as `[rank3]:`.
    pub tag: Option<String>,
    /// Its rank, if the tag names one.
    pub rank: Option<u32>,
    /// The numbers.
    pub numbers: Numbers,
    /// The releases that print such a text.
    pub age: Option<Age>,
    /// The hint that PyTorch added.
    pub hint: Option<Hint>,
    /// The text ends before it is complete.
    pub cut: bool,
    /// How often the same text occurs (a wrapper repeats it, a program retries).
    pub times: usize,
    /// The words that identified it, for texts without numbers.
    pub words: &'static str,
    /// Index of the line in the table of lines, for looking around it.
    pub(super) index: usize,
    /// Indices of the further lines of the text.
    pub(super) further: Vec<usize>,
}

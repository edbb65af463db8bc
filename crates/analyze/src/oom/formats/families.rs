//! The texts of [`super::neighbours`], by whose memory they are about.

use super::neighbours::Family;
use super::neighbours::Place::{Alone, Anywhere, Number};
use crate::oom::event::{Form, Kind};

const JOB: &str = "the host memory that the job was granted";
const HOST: &str = "the memory of the host (RAM), or a limit on it (ulimit -v, a container)";
const HEAP_LIMIT: &str = "such a heap has a limit of its own, below the memory of the machine";
const OWN_CACHE: &str = "it has a cache of its own: PyTorch's settings do not apply to it";

const COMPILER_ADVICE: &[(&str, &str)] = &[(
    "compile with fewer jobs at once (MAX_JOBS=2 for PyTorch's extensions, -j2 for make and ninja)",
    "each job is a compiler with memory of its own, up to several GiB for CUDA sources",
)];

/// All of them.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        kind: Kind::Cpu,
        form: Form::RuntimeHeap,
        whose: "the heap of a Java virtual machine",
        advice: &[(
            "raise the limit of that heap (-Xmx; for Spark spark.driver.memory and spark.executor.memory)",
            HEAP_LIMIT,
        )],
        texts: &[("java.lang.outofmemoryerror", Anywhere, "java.lang.OutOfMemoryError")],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::RuntimeHeap,
        whose: "the heap of a JavaScript engine such as Node.js",
        advice: &[(
            "raise the limit of that heap (NODE_OPTIONS=--max-old-space-size=8192, in MiB)",
            HEAP_LIMIT,
        )],
        texts: &[
            ("javascriptheapoutofmemory", Anywhere, "JavaScript heap out of memory"),
            ("arraybufferallocationfailed", Anywhere, "Array buffer allocation failed"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::RuntimeHeap,
        whose: "the memory of a .NET program",
        advice: &[],
        texts: &[("system.outofmemoryexception", Anywhere, "System.OutOfMemoryException")],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::RuntimeHeap,
        whose: "the memory of a PHP program",
        advice: &[("raise memory_limit in php.ini", HEAP_LIMIT)],
        texts: &[(
            "allowedmemorysizeof{i}bytesexhausted(triedtoallocate{s}",
            Anywhere,
            "Allowed memory size of … bytes exhausted",
        )],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::HostAllocation,
        whose: "the memory of the host, which another program than Python asked for,",
        advice: &[],
        texts: &[
            (
                "insufficientmemoryforthejavaruntimeenvironment",
                Anywhere,
                "There is insufficient memory for the Java Runtime Environment",
            ),
            ("fatalerror:runtime:outofmemory", Anywhere, "fatal error: runtime: out of memory"),
            ("memoryallocationof{s}failed", Anywhere, "memory allocation of … bytes failed"),
            ("cannotallocatevectorofsize{s}", Anywhere, "cannot allocate vector of size"),
            (
                "failedtoallocate{s}infunction",
                Anywhere,
                "Failed to allocate … in function (OpenCV)",
            ),
            ("virtualmemoryexhausted:", Anywhere, "virtual memory exhausted"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::HostAllocation,
        whose: HOST,
        advice: &[],
        texts: &[
            ("memoryerror", Alone, "MemoryError"),
            ("[errno12]cannotallocatememory", Anywhere, "[Errno 12] Cannot allocate memory"),
            ("fork:cannotallocatememory", Anywhere, "fork: Cannot allocate memory"),
            ("mmap:cannotallocatememory", Anywhere, "mmap: Cannot allocate memory"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::HostAllocation,
        whose: "the memory that Windows can promise (RAM and paging file)",
        advice: &[(
            "make the paging file larger, or start fewer processes that load PyTorch (data loader workers)",
            "each process that loads the CUDA libraries is promised memory that it never touches",
        )],
        texts: &[("[winerror1455]", Anywhere, "[WinError 1455] The paging file is too small")],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::HostAllocation,
        whose: "the memory of the host, which llama.cpp (ggml) asked for,",
        advice: &[(
            "use a smaller quantization or a shorter context (--ctx-size)",
            "what is not kept on the card lies in the memory of the host",
        )],
        texts: &[
            (
                "failedtoallocatecpubufferofsize{i}",
                Anywhere,
                "failed to allocate CPU buffer of size",
            ),
            ("unabletoallocatecpubuffer", Anywhere, "unable to allocate CPU buffer"),
            ("modelrequiresmoresystemmemory({s}", Anywhere, "model requires more system memory"),
            (
                "cpu_buffer_type_alloc_buffer:failedtoallocatebufferofsize{i}",
                Anywhere,
                "failed to allocate buffer of size",
            ),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::Killed,
        whose: "the memory of the host",
        advice: &[],
        texts: &[
            ("outofmemory:killprocess", Anywhere, "Out of memory: Kill process"),
            ("invokedoom-killer", Anywhere, "invoked oom-killer"),
            ("duetomemorypressure", Anywhere, "killed … due to memory pressure"),
            (
                "sessioncrashedafterusingallavailableram",
                Anywhere,
                "Your session crashed after using all available RAM",
            ),
            (
                "triedtoallocatemorememorythanisavailable.ithasrestarted",
                Anywhere,
                "Your notebook tried to allocate more memory than is available",
            ),
            ("thenodewaslowonresource:memory", Anywhere, "The node was low on resource: memory"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::Killed,
        whose: JOB,
        advice: &[(
            "ask for more memory for the job (Slurm: --mem or --mem-per-cpu; LSF: -M; PBS: mem=), or use fewer data loader workers",
            "the scheduler ends a job that holds more than it was granted, whatever the machine has",
        )],
        texts: &[
            ("oom_killevent", Anywhere, "oom_kill event"),
            ("oom-killevent", Anywhere, "oom-kill event"),
            ("state:out_of_memory", Anywhere, "State: OUT_OF_MEMORY"),
            ("task{i}:outofmemory", Anywhere, "srun: error: … task …: Out Of Memory"),
            ("exceededjobmemorylimit", Anywhere, "Exceeded job memory limit"),
            ("term_memlimit", Anywhere, "TERM_MEMLIMIT"),
            ("pbs:jobkilled:mem", Anywhere, "PBS: job killed: mem"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::Signal,
        whose: "the memory of the host",
        advice: &[],
        texts: &[
            ("exitcode137", Number, "exit code 137"),
            ("exitcode:137", Number, "exit code: 137"),
            ("exitedwithcode137", Number, "exited with code 137"),
            ("exitstatus137", Number, "exit status 137"),
            ("non-zerocode:137", Number, "returned a non-zero code: 137"),
            ("returncode=-9", Number, "return code = -9"),
            ("exitcode:-9)", Anywhere, "exitcode: -9"),
            ("killed", Alone, "Killed"),
            ("line{i}:{i}killed", Anywhere, "line …: … Killed"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::Signal,
        whose: "the memory of the host, which a compiler filled,",
        advice: COMPILER_ADVICE,
        texts: &[
            ("killedsignalterminatedprogram", Anywhere, "Killed signal terminated program"),
            ("internalcompilererror:killed", Anywhere, "internal compiler error: Killed"),
        ],
    },
    Family {
        kind: Kind::Cpu,
        form: Form::HostAllocation,
        whose: "the memory of the host, which a compiler or linker asked for,",
        advice: COMPILER_ADVICE,
        texts: &[
            ("cc1plus:outofmemory", Anywhere, "cc1plus: out of memory"),
            ("cc1:outofmemory", Anywhere, "cc1: out of memory"),
            ("lto1:outofmemory", Anywhere, "lto1: out of memory"),
            ("cicc:outofmemory", Anywhere, "cicc: out of memory"),
            ("llvmerror:outofmemory", Anywhere, "LLVM ERROR: out of memory"),
            ("ld:outofmemory", Anywhere, "ld: out of memory"),
            ("lld:error:outofmemory", Anywhere, "lld: error: out of memory"),
            (
                "outofmemoryallocating{s}afteratotalof",
                Anywhere,
                "out of memory allocating … bytes after a total of",
            ),
        ],
    },
    Family {
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        whose: "TensorFlow's or JAX's own allocator",
        advice: &[(
            "let it take less of the card (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION or XLA_PYTHON_CLIENT_PREALLOCATE=false; TensorFlow: TF_FORCE_GPU_ALLOW_GROWTH=true), or use a smaller batch",
            OWN_CACHE,
        )],
        texts: &[
            (
                "resource_exhausted:failedtoallocaterequestfor{s}",
                Anywhere,
                "RESOURCE_EXHAUSTED: Failed to allocate request",
            ),
            ("ranoutofmemorytryingtoallocate{s}", Anywhere, "ran out of memory trying to allocate"),
            (
                "resource_exhausted:ranoutofmemoryinmemoryspace",
                Anywhere,
                "RESOURCE_EXHAUSTED: Ran out of memory in memory space",
            ),
            ("failedtoallocatememory[op:", Anywhere, "failed to allocate memory [Op: …]"),
        ],
    },
    Family {
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        whose: "llama.cpp (ggml), which asks the driver for a few large buffers,",
        advice: &[(
            "keep fewer layers on the card (--n-gpu-layers), a shorter context (--ctx-size) or a smaller quantization",
            OWN_CACHE,
        )],
        texts: &[
            (
                "failedtoallocatecuda{i}bufferofsize{i}",
                Anywhere,
                "failed to allocate CUDA… buffer of size",
            ),
            ("unabletoallocatecuda{i}buffer", Anywhere, "unable to allocate CUDA… buffer"),
            (
                "failedtoallocatebufferforkvcache",
                Anywhere,
                "failed to allocate buffer for kv cache",
            ),
        ],
    },
    Family {
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        whose: "PaddlePaddle's own allocator",
        advice: &[],
        texts: &[(
            "outofmemoryerrorongpu{i}.cannotallocate{s}memoryongpu",
            Anywhere,
            "Out of memory error on GPU …. Cannot allocate",
        )],
    },
    Family {
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        whose: "CUDA.jl of a Julia program",
        advice: &[],
        texts: &[(
            "outofgpumemorytryingtoallocate{s}",
            Anywhere,
            "Out of GPU memory trying to allocate",
        )],
    },
    Family {
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        whose: "a program that uses Vulkan or OpenCL",
        advice: &[],
        texts: &[
            ("erroroutofdevicememory", Anywhere, "ErrorOutOfDeviceMemory"),
            ("cl_mem_object_allocation_failure", Anywhere, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
        ],
    },
    Family {
        kind: Kind::Library,
        form: Form::LibraryStatus,
        whose: "bitsandbytes, which asks the driver itself,",
        advice: &[],
        texts: &[("erroroutofmemoryatline", Anywhere, "Error out of memory at line …")],
    },
    Family {
        kind: Kind::Library,
        form: Form::LibraryStatus,
        whose: "RMM, the allocator of RAPIDS (cuDF, cuML),",
        advice: &[],
        texts: &[(
            "std::bad_alloc:out_of_memory:cudaerror",
            Anywhere,
            "std::bad_alloc: out_of_memory: CUDA error",
        )],
    },
    Family {
        kind: Kind::Library,
        form: Form::LibraryStatus,
        whose: "TensorRT, which asks the driver itself,",
        advice: &[],
        texts: &[
            ("cudaruntime(outofmemory)", Anywhere, "Cuda Runtime (out of memory)"),
            (
                "cudaruntimeerrorin::cudamalloc(ptr,n):outofmemory",
                Anywhere,
                "CUDA runtime error in ::cudaMalloc: out of memory",
            ),
        ],
    },
];

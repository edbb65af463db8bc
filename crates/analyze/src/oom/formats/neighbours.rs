//! Memory that ran out elsewhere: other languages' heaps, the host, job schedulers, other frameworks.
//!
//! Logs of training and serving have these beside PyTorch's own errors, or in their place. Each is
//! named for what it is, so that nobody changes the settings of a GPU for the heap of a Java program.

use super::store;
use crate::oom::amount::Amount;
use crate::oom::event::{Form, Kind, Numbers};
use crate::oom::lines::{compact, undecorated};
use crate::oom::pattern::{Outcome, Value, find, match_at};

/// Where in its line a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Anywhere.
    Anywhere,
    /// Anywhere, if no digit follows.
    Number,
    /// It is all that the program wrote in this line, but for words behind a colon.
    Alone,
}

use Place::{Alone, Anywhere, Number};

/// What to do, and why it should help.
type Advice = (&'static str, &'static str);

/// Texts that say the same thing.
pub(in crate::oom) struct Family {
    pub(in crate::oom) kind: Kind,
    pub(in crate::oom) form: Form,
    /// Whose memory it was, for the middle of a sentence.
    pub(in crate::oom) whose: &'static str,
    /// What to do about it; nothing where the cause has advice of its own.
    pub(in crate::oom) advice: &'static [Advice],
    /// How each looks in compact text (`{s}` is the size that was refused, `{i}` any number), and as
    /// a person would quote it.
    texts: &'static [(&'static str, Place, &'static str)],
}

/// The family of a text, by its quotation.
pub(in crate::oom) fn family(words: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.texts.iter().any(|(.., quoted)| *quoted == words))
}

/// One that was found: where it begins and ends in the compact line, and what it says.
pub(in crate::oom) struct Found {
    pub(in crate::oom) at: usize,
    pub(in crate::oom) end: usize,
    pub(in crate::oom) family: &'static Family,
    pub(in crate::oom) words: &'static str,
    pub(in crate::oom) numbers: Numbers,
}

/// Parts of which every text has one: most lines have none, and are done with.
const KEYS: [&str; 17] = [
    "resource:m",
    "alloc",
    "kill",
    "137",
    "outof",
    "out_of",
    "exhausted",
    "memoryerr",
    "memoryp",
    "cientmem",
    "e=-9",
    ":-9)",
    "memlimit",
    "jobmem",
    "winerror",
    "ingallav",
    "systemmem",
];

/// All of one line: of its compact text with a little of the next, which begins at `own`, and of the
/// text itself without the writer's tag.
pub(in crate::oom) fn all(hay: &[u8], own: usize, text: &str) -> Vec<Found> {
    let mut out = Vec::new();
    // The standard library searches short strings in text much faster than in bytes.
    if std::str::from_utf8(hay).is_ok_and(|hay| !KEYS.iter().any(|key| hay.contains(key))) {
        return out;
    }
    for family in FAMILIES {
        for (pattern, place, words) in family.texts {
            let lead = pattern.split('{').next().unwrap_or_default();
            if *place == Alone && !is_alone(lead, text) {
                continue;
            }
            let Some(at) = find(hay, lead, 0).filter(|at| *at < own) else { continue };
            let Outcome::Full(values, used) = match_at(pattern, &hay[at..]) else { continue };
            let digit = hay.get(at + used).is_some_and(u8::is_ascii_digit);
            if *place == Number && digit && at + used < own {
                continue;
            }
            let mut numbers = Numbers::default();
            let size = values.iter().find(|v| !matches!(v, Value::Int(_)));
            store(&mut numbers.tried, &mut numbers.impossible, "tried", size);
            if let (Some(Value::Int(bytes)), true) = (values.last(), pattern.ends_with("size{i}")) {
                numbers.tried = Some(Amount { bytes: *bytes, slop: 0 });
            }
            out.push(Found { at, end: at + used, family, words, numbers });
        }
    }
    // RMM raises a MemoryError for the memory of the card.
    if out.iter().any(|f| f.family.kind == Kind::Library) {
        out.retain(|f| f.family.kind != Kind::Cpu);
    }
    out
}

/// Whether a line says nothing else, as Python's `MemoryError` and a shell's `Killed`.
fn is_alone(word: &str, text: &str) -> bool {
    let text = compact(undecorated(text));
    text.strip_prefix(word.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
}

const JOB: &str = "the host memory that the job was granted";
const HOST: &str = "the memory of the host (RAM), or a limit on it (ulimit -v, a container)";
const HEAP_LIMIT: &str = "such a heap has a limit of its own, below the memory of the machine";
const OWN_CACHE: &str = "it has a cache of its own: PyTorch's settings do not apply to it";

const FAMILIES: &[Family] = &[
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
            ("killedsignalterminatedprogram", Anywhere, "Killed signal terminated program"),
            ("internalcompilererror:killed", Anywhere, "internal compiler error: Killed"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_a_key_and_a_quotation_of_its_own() {
        let texts: Vec<_> = FAMILIES.iter().flat_map(|family| family.texts).collect();
        for (i, (pattern, _, words)) in texts.iter().enumerate() {
            assert!(KEYS.iter().any(|key| pattern.contains(key)), "{pattern}");
            assert!(!texts[..i].iter().any(|(.., earlier)| earlier == words), "{words}");
        }
    }
}

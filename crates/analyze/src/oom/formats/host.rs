//! Host memory: PyTorch's CPU allocator, NumPy, C++, and the operating system.

use super::store;
use crate::oom::event::{Form, Numbers};
use crate::oom::joiner::Reading;
use crate::oom::pattern::{Outcome, match_at};

/// A text of this family: its beginning, its whole pattern, and what it is.
pub(in crate::oom) struct HostText {
    pub(in crate::oom) anchor: &'static str,
    patterns: &'static [&'static str],
    pub(in crate::oom) form: Form,
    pub(in crate::oom) words: &'static str,
}

/// All of them. The anchor is the part that every variant has.
pub(in crate::oom) const TEXTS: &[HostText] = &[
    HostText {
        anchor: "defaultcpuallocator:",
        patterns: &[
            "defaultcpuallocator:can'tallocatememory:youtriedtoallocate{s}",
            "defaultcpuallocator:notenoughmemory:youtriedtoallocate{s}",
            "defaultcpuallocator:can'tallocatememory:youtriedtoallocate{s}.buyouneedto",
        ],
        form: Form::CpuAllocator,
        words: "DefaultCPUAllocator",
    },
    HostText {
        anchor: "unabletoallocate",
        patterns: &["unabletoallocate{s}foranarraywithshape"],
        form: Form::HostAllocation,
        words: "Unable to allocate … for an array",
    },
    HostText {
        anchor: "caughtruntimeerrorinpinmemorythread",
        patterns: &["caughtruntimeerrorinpinmemorythread"],
        form: Form::PinThread,
        words: "Caught RuntimeError in pin memory thread",
    },
    HostText {
        anchor: "std::bad_alloc",
        patterns: &["std::bad_alloc"],
        form: Form::HostAllocation,
        words: "std::bad_alloc",
    },
    HostText {
        anchor: "outofmemory:killedprocess",
        patterns: &["outofmemory:killedprocess"],
        form: Form::Killed,
        words: "Out of memory: Killed process",
    },
    HostText {
        anchor: "taskwaskilledduetothenoderunninglowonmemory",
        patterns: &["taskwaskilledduetothenoderunninglowonmemory"],
        form: Form::Killed,
        words: "Task was killed due to the node running low on memory",
    },
    HostText {
        anchor: "oomkilled",
        patterns: &["oomkilled"],
        form: Form::Killed,
        words: "OOMKilled",
    },
    HostText {
        anchor: "memorycgroupoutofmemory",
        patterns: &["memorycgroupoutofmemory"],
        form: Form::Killed,
        words: "Memory cgroup out of memory",
    },
    HostText {
        anchor: "iskilledbysignal:killed",
        patterns: &["iskilledbysignal:killed"],
        form: Form::Signal,
        words: "killed by signal: Killed",
    },
    HostText {
        anchor: "signal9(sigkill)",
        patterns: &["signal9(sigkill)"],
        form: Form::Signal,
        words: "Signal 9 (SIGKILL)",
    },
    HostText {
        anchor: "exitcode:-9(",
        patterns: &["exitcode:-9(pid:"],
        form: Form::Signal,
        words: "exitcode: -9",
    },
    HostText {
        anchor: "insufficientsharedmemory(shm)",
        patterns: &["insufficientsharedmemory(shm)"],
        form: Form::SharedMemory,
        words: "insufficient shared memory (shm)",
    },
    HostText {
        anchor: "workersareoutofsharedmemory",
        patterns: &["workersareoutofsharedmemory"],
        form: Form::SharedMemory,
        words: "workers are out of shared memory",
    },
    HostText {
        anchor: "nospaceleftondevice:'/dev/shm",
        patterns: &["nospaceleftondevice:'/dev/shm"],
        form: Form::SharedMemory,
        words: "No space left on device: '/dev/shm/…'",
    },
    HostText {
        anchor: "unabletowritetofile:nospaceleftondevice(28)",
        patterns: &["unabletowritetofile:nospaceleftondevice(28)"],
        form: Form::SharedMemory,
        words: "unable to write to file </torch_…>",
    },
    HostText {
        anchor: "cannotallocatememory(12)",
        patterns: &["cannotallocatememory(12)"],
        form: Form::HostAllocation,
        words: "Cannot allocate memory (12)",
    },
];

/// Reads one from its anchor on; the flag says whether it is one at all.
pub(in crate::oom) fn read(of: &HostText, text: &[u8]) -> Reading<Option<Numbers>> {
    let mut partial = false;
    for pattern in of.patterns {
        match match_at(pattern, text) {
            Outcome::Full(values, used) => {
                let mut n = Numbers::default();
                store(&mut n.tried, &mut n.impossible, "tried", values.first());
                return Reading { value: Some(n), reach: used, open: false };
            }
            Outcome::Partial => partial = true,
            Outcome::No => {}
        }
    }
    // The allocator's name alone, the rest cut off, is still this error.
    let cut = (partial && of.form == Form::CpuAllocator).then(Numbers::default);
    Reading { value: cut, reach: if partial { text.len() } else { 0 }, open: partial }
}

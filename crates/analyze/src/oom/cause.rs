//! The causes that are told apart.

/// Why memory ran out (or why it looks as if it had).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// What is live and the request together do not fit.
    TrueCapacity,
    /// The single request is larger than the card.
    RequestLargerThanCard,
    /// A size that no tensor can have: a wrong shape or an overflow.
    AbsurdRequest,
    /// Enough memory is cached, but in pieces.
    Fragmentation,
    /// Enough is free inside the pools of CUDA graphs, where the request may not go.
    PrivatePools,
    /// Blocks that were given back wait for other streams.
    PendingFree,
    /// Other processes hold the memory.
    OtherProcess,
    /// This process holds the memory, outside PyTorch's allocator.
    OwnOutsidePytorch,
    /// A limit below the card's size.
    MemoryLimit,
    /// More was allocated than the card has: the driver spilled into system memory, and that ran
    /// out.
    SystemMemorySpill,
    /// More is held than the card has, and nothing tells where it lies.
    MoreThanCard,
    /// The driver refused although enough was free.
    RefusedAlthoughFree,
    /// The driver refuses single allocations of that size.
    SingleAllocationLimit,
    /// A library asked the driver while PyTorch or others held the memory.
    OutsidePytorch,
    /// The heap of another language's runtime.
    RuntimeHeap,
    /// Host memory.
    HostMemory,
    /// Pinned host memory.
    PinnedMemory,
    /// The system ended the process for lack of host memory.
    ProcessKilled,
    /// The limit of the MPS back end, reached by PyTorch's own tensors.
    MpsLimit,
    /// The limit of the MPS back end, reached by allocations outside PyTorch's allocator.
    MpsOtherAllocations,
    /// The budget of a serving engine.
    EngineBudget,
    /// An assertion or a missing text hides an out-of-memory error.
    MaskedError,
    /// Two settings contradict each other.
    SettingsConflict,
    /// No lack of memory at all.
    NotOutOfMemory,
    /// Another framework.
    OtherFramework,
    /// The text does not tell.
    Unknown,
}

/// Requests from here on are no tensor's: more than any host or card has.
const ABSURD: u64 = 64 << 40;

impl Cause {
    /// Whether a request is of a size that no tensor has, on a card of so many bytes if that is known.
    pub(crate) fn is_absurd(asked: u64, card: Option<u64>) -> bool {
        asked >= ABSURD || card.is_some_and(|total| asked / 64 > total)
    }

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::TrueCapacity => "true_capacity",
            Cause::RequestLargerThanCard => "request_larger_than_card",
            Cause::AbsurdRequest => "absurd_request",
            Cause::Fragmentation => "fragmentation",
            Cause::PrivatePools => "private_pools",
            Cause::PendingFree => "pending_free",
            Cause::OtherProcess => "other_process",
            Cause::OwnOutsidePytorch => "own_outside_pytorch",
            Cause::MemoryLimit => "memory_limit",
            Cause::SystemMemorySpill => "system_memory_spill",
            Cause::MoreThanCard => "more_than_card",
            Cause::RefusedAlthoughFree => "refused_although_free",
            Cause::SingleAllocationLimit => "single_allocation_limit",
            Cause::OutsidePytorch => "outside_pytorch",
            Cause::RuntimeHeap => "runtime_heap",
            Cause::HostMemory => "host_memory",
            Cause::PinnedMemory => "pinned_memory",
            Cause::ProcessKilled => "process_killed",
            Cause::MpsLimit => "mps_limit",
            Cause::MpsOtherAllocations => "mps_other_allocations",
            Cause::EngineBudget => "engine_budget",
            Cause::MaskedError => "masked_error",
            Cause::SettingsConflict => "settings_conflict",
            Cause::NotOutOfMemory => "not_out_of_memory",
            Cause::OtherFramework => "other_framework",
            Cause::Unknown => "unknown",
        }
    }

    /// A few words for people, for tables.
    pub const fn words(self) -> &'static str {
        match self {
            Cause::TrueCapacity => "the card is too small",
            Cause::RequestLargerThanCard => "larger than the card",
            Cause::AbsurdRequest => "absurd size",
            Cause::Fragmentation => "fragmentation",
            Cause::PrivatePools => "free in private pools",
            Cause::PendingFree => "waits for streams",
            Cause::OtherProcess => "other processes",
            Cause::OwnOutsidePytorch => "own, outside PyTorch",
            Cause::MemoryLimit => "limit of the process",
            Cause::SystemMemorySpill => "spilled into RAM",
            Cause::MoreThanCard => "more than the card has",
            Cause::RefusedAlthoughFree => "refused although free",
            Cause::SingleAllocationLimit => "too large at once",
            Cause::OutsidePytorch => "outside PyTorch",
            Cause::RuntimeHeap => "another program's heap",
            Cause::HostMemory => "host memory (RAM)",
            Cause::PinnedMemory => "pinned host memory",
            Cause::ProcessKilled => "killed (host memory)",
            Cause::MpsLimit => "limit of MPS",
            Cause::MpsOtherAllocations => "outside PyTorch (MPS)",
            Cause::EngineBudget => "budget of the engine",
            Cause::MaskedError => "its text is missing",
            Cause::SettingsConflict => "settings contradict",
            Cause::NotOutOfMemory => "no lack of memory",
            Cause::OtherFramework => "another framework",
            Cause::Unknown => "not told by the text",
        }
    }

    /// One sentence for people, without full stop.
    pub const fn sentence(self) -> &'static str {
        match self {
            Cause::TrueCapacity => "the card is too small for what is live plus this request",
            Cause::RequestLargerThanCard => "this one request is larger than the whole card",
            Cause::AbsurdRequest => {
                "the requested size is absurd: a wrong shape or an overflow, not a lack of memory"
            }
            Cause::Fragmentation => {
                "fragmentation: enough memory is cached, but scattered in pieces that are too small"
            }
            Cause::PrivatePools => {
                "the free memory lies in the private pools of CUDA graphs, which other requests may not use"
            }
            Cause::PendingFree => {
                "memory that was given back waits for other streams (record_stream)"
            }
            Cause::OtherProcess => "other processes hold most of the card",
            Cause::OwnOutsidePytorch => {
                "memory of this process outside PyTorch's allocator fills the card"
            }
            Cause::MemoryLimit => "a limit on this process was reached, not the end of the card",
            Cause::SystemMemorySpill => {
                "more was allocated than the card has; the driver spilled into system memory until that ran out too"
            }
            Cause::MoreThanCard => {
                "more is held than the card has, which is impossible on the card itself: a part lies elsewhere, or the figures do not belong together"
            }
            Cause::RefusedAlthoughFree => {
                "the driver refused although enough memory is reported free"
            }
            Cause::SingleAllocationLimit => "the driver refuses single allocations of this size",
            Cause::OutsidePytorch => {
                "a library found no memory left on the card, outside PyTorch's allocator"
            }
            Cause::RuntimeHeap => {
                "the heap of another program (in Java, JavaScript or the like) reached its limit, not the memory of a GPU"
            }
            Cause::HostMemory => "host memory (RAM) ran out, not the memory of a GPU",
            Cause::PinnedMemory => {
                "the thread that pins host memory failed; its own error text tells why"
            }
            Cause::ProcessKilled => {
                "the operating system ended a process because host memory ran out"
            }
            Cause::MpsLimit => "PyTorch's own tensors reached the limit of the MPS back end",
            Cause::MpsOtherAllocations => {
                "memory outside PyTorch's allocator fills most of the limit of the MPS back end"
            }
            Cause::EngineBudget => "the serving engine's memory budget is larger than what is free",
            Cause::MaskedError => "an out-of-memory error whose own text is missing here",
            Cause::SettingsConflict => {
                "two allocator settings contradict each other; memory did not run out"
            }
            Cause::NotOutOfMemory => "this is no lack of memory",
            Cause::OtherFramework => {
                "another framework in the same log ran out of memory, not PyTorch"
            }
            Cause::Unknown => "the text does not say enough to tell the cause",
        }
    }
}

//! Documented facts that explanations lean on, each with its source. Nothing else in this crate
//! states such a fact; explanations quote the table.

/// A fact and where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Stable name.
    pub name: &'static str,
    /// The fact, a sentence without full stop.
    pub says: &'static str,
    /// Title of the document, and the release it describes.
    pub source: &'static str,
}

macro_rules! facts {
    ($($constant:ident: $name:literal, $says:literal, $source:literal;)*) => {
        $(
            #[doc = $says]
            pub(super) const $constant: Fact = Fact { name: $name, says: $says, source: $source };
        )*

        /// All facts.
        pub const FACTS: &[Fact] = &[$($constant),*];
    };
}

facts! {
    CONTEXT: "cuda-context",
        "a process holds some hundred MiB on each card for its CUDA context and loaded kernels, outside every PyTorch counter",
        "PyTorch documentation, CUDA semantics, memory management (2.11)";
    NVIDIA_SMI: "nvidia-smi",
        "nvidia-smi shows what PyTorch reserves plus the context, which is more than memory_allocated",
        "PyTorch documentation, CUDA semantics, memory management (2.11)";
    DIRECT_USERS: "direct-users",
        "NCCL and other libraries take memory from the driver directly; it is in no PyTorch counter",
        "PyTorch documentation, Understanding CUDA memory usage (2.11)";
    CUBLAS_WORKSPACE: "cublas-workspace",
        "cuBLAS keeps a workspace for each handle and stream, whose size CUBLAS_WORKSPACE_CONFIG sets",
        "PyTorch documentation, CUDA semantics, cuBLAS workspaces (2.11)";
    SEGMENT_REQUEST: "segment-request",
        "'Tried to allocate' is what was asked of the driver, not the tensor: 20 MiB for requests between 1 and 10 MiB, else a multiple of 2 MiB",
        "vramwise allocator specification §1.6 and §10.2 (PyTorch 2.11)";
    CACHE_IS_FLUSHED: "cache-is-flushed",
        "PyTorch gives its wholly free segments back and asks again before it raises the error, so torch.cuda.empty_cache() in front of the failing line frees nothing more",
        "vramwise allocator specification §4 and §5.6 (PyTorch 2.11)";
    EXPANDABLE: "expandable-segments",
        "with expandable segments free space inside a segment goes back to the driver in pieces of 20 MiB and can serve any size",
        "vramwise allocator specification §6 (PyTorch 2.11)";
    EXPANDABLE_PLATFORMS: "expandable-platforms",
        "expandable segments exist from 2.1 on, for CUDA on Linux; on Windows the option is ignored with a warning, on ROCm it works from 2.12 on",
        "vramwise allocator specification §6.1 and §14";
    SPLIT_LIMIT: "max-split-size",
        "blocks of max_split_size_mb and more are not split, so large segments stay whole for large requests; the smallest legal value is 20 (21 up to 2.9)",
        "PyTorch documentation, CUDA semantics, PYTORCH_CUDA_ALLOC_CONF (2.11)";
    PRIVATE_POOLS: "private-pools",
        "memory of CUDA graph pools serves only its own graphs; other requests cannot use what is free in it",
        "vramwise allocator specification §5.7 and §10.2 (PyTorch 2.11)";
    FRACTION: "memory-fraction",
        "torch.cuda.set_per_process_memory_fraction limits what PyTorch may reserve; the error then names the bytes allowed",
        "PyTorch documentation, torch.cuda.set_per_process_memory_fraction (2.11)";
    SPILL: "system-memory-spill",
        "on Windows and WSL2 the driver can move allocations beyond the card's memory into system memory, which is slow and makes PyTorch's figures exceed the card",
        "NVIDIA control panel help, CUDA system memory fallback policy (driver 536.40 and later)";
    PID_NAMESPACE: "pid-namespace",
        "in a container the driver lists processes by their numbers on the host, so PyTorch does not recognise its own and lists it as another process",
        "vramwise allocator specification §10.2 (PyTorch 2.11)";
    NVML_SENTINEL: "nvml-sentinel",
        "17179869184.00 GiB is 2^64 bytes: the driver cannot tell the memory of a process (WSL2, Windows, containers)",
        "vramwise allocator specification §10.2 (PyTorch 2.11)";
    NVML_MASKS: "nvml-masks",
        "while PyTorch puts its out-of-memory text together it asks NVML for the processes; where NVML fails, this assertion is raised in the place of the error",
        "vramwise allocator specification §10.2 (PyTorch 2.11)";
    MPS_LIMIT: "mps-limit",
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO sets the limit as a multiple of what Metal recommends (default 1.7, 0.0 for none); it is read once, when the process starts",
        "PyTorch documentation, MPS environment variables (2.11)";
    XPU_SINGLE: "xpu-single-allocation",
        "drivers for Intel Arc cards refuse a single allocation of more than 4 GiB unless relaxed allocation limits are asked for",
        "Intel Graphics Compute Runtime documentation, allocations greater than 4 GB";
    APU_MEMORY: "apu-memory",
        "an integrated GPU reports the memory set aside for it as its total; the rest of system memory is reached through another pool",
        "AMD ROCm documentation, memory of accelerated processing units";
    EXPANDABLE_SPLIT_ASSERT: "expandable-with-split",
        "in 2.1 and 2.2 max_split_size_mb together with expandable_segments:True trips this assertion",
        "vramwise allocator specification §6.4 and §14";
    TRACEBACK_HOLDS: "traceback-holds",
        "while an exception is handled its traceback keeps the tensors of all its frames alive; leave the except block before trying again",
        "PyTorch documentation, frequently asked questions, out-of-memory recovery (2.11)";
    ASYNC_ERRORS: "asynchronous-errors",
        "an error of the CUDA runtime may be reported at a later call than the one that failed",
        "PyTorch documentation, CUDA semantics, asynchronous execution (2.11)";
    CHECKPOINTING: "checkpointing",
        "activation checkpointing keeps only the inputs of the checkpointed parts and computes the rest again in the backward pass",
        "PyTorch documentation, torch.utils.checkpoint (2.11)";
    ADAM_STATES: "adam-states",
        "Adam keeps two values for each parameter, allocated at its first step; the foreach implementation needs temporaries of the size of all parameters, foreach=False does not",
        "PyTorch documentation, torch.optim.Adam (2.11)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_name_of_its_own_a_sentence_and_a_source() {
        let mut names: Vec<_> = FACTS.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FACTS.len());
        assert!(FACTS.iter().all(|f| !f.says.ends_with('.') && f.source.len() > 10));
    }
}

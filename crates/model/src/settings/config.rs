//! The settings after parsing, as the allocator uses them.

/// Number of size classes of `roundup_power2_divisions` (specification §1.3).
pub const ROUNDUP_BUCKETS: usize = 16;

/// Which allocator PyTorch loads (`backend:`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// PyTorch's own caching allocator; the only one that the model describes.
    #[default]
    Native,
    /// The driver's stream-ordered allocator.
    CudaMallocAsync,
}

/// Every option that changes where a block goes or what the allocator asks of the device.
///
/// Sizes are bytes. Sources: specification §9.3, PyTorch 2.11.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `backend`.
    pub backend: Backend,
    /// `max_split_size_mb` in bytes; `u64::MAX` = unlimited.
    pub max_split_size: u64,
    /// `max_non_split_rounding_mb` in bytes; defaults to the large segment size.
    pub max_non_split_rounding: u64,
    /// `large_segment_size_mb` in bytes: what a request below 10 MiB asks of the device.
    pub large_segment_size: u64,
    /// `roundup_power2_divisions`, per size class; 0 or 1 = plain rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; ROUNDUP_BUCKETS],
    /// `garbage_collection_threshold`; 0 = off. Works only together with a limit below the card.
    pub garbage_collection_threshold: f64,
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `per_process_memory_fraction`; 1.0 = no limit.
    pub per_process_memory_fraction: f64,
    /// `graph_capture_record_stream_reuse`.
    pub graph_capture_record_stream_reuse: bool,
    /// `release_lock_on_cudamalloc`; no effect on placement.
    pub release_lock_on_cudamalloc: bool,
    /// `throw_on_cudamalloc_oom` (2.12 and later).
    pub throw_on_cudamalloc_oom: bool,
    /// `pinned_use_cuda_host_register`; host memory, no effect on the model.
    pub pinned_use_cuda_host_register: bool,
    /// `pinned_num_register_threads`; host memory, no effect on the model.
    pub pinned_num_register_threads: u64,
    /// `pinned_use_background_threads`; host memory, no effect on the model.
    pub pinned_use_background_threads: bool,
    /// `pinned_reserve_segment_size_mb` in bytes; host memory, no effect on the model.
    pub pinned_reserve_segment_size: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            backend: Backend::Native,
            max_split_size: u64::MAX,
            max_non_split_rounding: Self::LARGE_SEGMENT_DEFAULT,
            large_segment_size: Self::LARGE_SEGMENT_DEFAULT,
            roundup_power2_divisions: [0; ROUNDUP_BUCKETS],
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
            graph_capture_record_stream_reuse: false,
            release_lock_on_cudamalloc: false,
            throw_on_cudamalloc_oom: false,
            pinned_use_cuda_host_register: false,
            pinned_num_register_threads: 1,
            pinned_use_background_threads: false,
            pinned_reserve_segment_size: 0,
        }
    }
}

impl Config {
    /// 20 MiB, the large segment of every version before the option existed.
    pub const LARGE_SEGMENT_DEFAULT: u64 = 20 << 20;
}

//! Every option that a PyTorch release from 2.0 on knows, and since when.
//!
//! Releases are given as the minor number of 2.x. Where only the date of a change is known, the
//! release is the first whose branch was cut after it; those entries say "by date".

use vramwise_types::TorchVersion;

/// What an option does, and how its value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Backend,
    MaxSplitSize,
    MaxNonSplitRounding,
    LargeSegmentSize,
    GarbageCollectionThreshold,
    RoundupPower2Divisions,
    ExpandableSegments,
    PerProcessMemoryFraction,
    GraphCaptureRecordStreamReuse,
    ReleaseLockOnCudamalloc,
    ThrowOnCudamallocOom,
    PinnedUseCudaHostRegister,
    PinnedNumRegisterThreads,
    PinnedUseBackgroundThreads,
    PinnedReserveSegmentSize,
    PinnedFreeCatchAll,
    PinnedMaxRoundThreshold,
    PinnedMaxCachedSize,
    ExpandableSegmentsReserve,
    ExpandableSegmentsReserveByClass,
}

/// The shape of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `True` or `False`, in exactly that spelling.
    Boolean,
    /// A whole number of MiB.
    Megabytes,
    /// A whole number.
    Count,
    /// A fraction.
    Fraction,
    /// A number or a list in brackets.
    Divisions,
    /// The name of a backend.
    Name,
    /// A fraction of the card or a size that ends in `G`.
    Reserve,
    /// A list of named reserves.
    ReserveList,
}

/// Which of the two parsers of the unified dialect reads the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The one shared by all accelerators.
    Common,
    /// CUDA's own.
    Device,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) id: Id,
    pub(super) name: &'static str,
    /// Minor number of the first 2.x release that knows it.
    pub(super) since: u16,
    pub(super) shape: Shape,
    pub(super) reader: Reader,
}

const fn key(id: Id, name: &'static str, since: u16, shape: Shape, reader: Reader) -> Key {
    Key { id, name, since, shape, reader }
}

use Reader::{Common, Device};

/// All options with all their spellings. An alias is a row of its own behind the proper name.
pub(super) const KEYS: &[Key] = &[
    key(Id::Backend, "backend", 0, Shape::Name, Device),
    key(Id::MaxSplitSize, "max_split_size_mb", 0, Shape::Megabytes, Common),
    // By date: September 2024.
    key(Id::MaxNonSplitRounding, "max_non_split_rounding_mb", 6, Shape::Megabytes, Common),
    key(Id::LargeSegmentSize, "large_segment_size_mb", 11, Shape::Megabytes, Common),
    key(Id::GarbageCollectionThreshold, "garbage_collection_threshold", 0, Shape::Fraction, Common),
    key(Id::RoundupPower2Divisions, "roundup_power2_divisions", 0, Shape::Divisions, Common),
    key(Id::ExpandableSegments, "expandable_segments", 1, Shape::Boolean, Common),
    // By date: autumn 2025; it needs the unified parser.
    key(Id::PerProcessMemoryFraction, "per_process_memory_fraction", 10, Shape::Fraction, Device),
    key(
        Id::GraphCaptureRecordStreamReuse,
        "graph_capture_record_stream_reuse",
        9,
        Shape::Boolean,
        Device,
    ),
    key(Id::ReleaseLockOnCudamalloc, "release_lock_on_cudamalloc", 1, Shape::Boolean, Device),
    // By date: the spellings for ROCm came in October 2023.
    key(Id::ReleaseLockOnCudamalloc, "release_lock_on_hipmalloc", 2, Shape::Boolean, Device),
    key(Id::ThrowOnCudamallocOom, "throw_on_cudamalloc_oom", 12, Shape::Boolean, Device),
    // By date: October 2023.
    key(Id::PinnedUseCudaHostRegister, "pinned_use_cuda_host_register", 2, Shape::Boolean, Device),
    key(Id::PinnedUseCudaHostRegister, "pinned_use_hip_host_register", 2, Shape::Boolean, Device),
    key(Id::PinnedNumRegisterThreads, "pinned_num_register_threads", 2, Shape::Count, Device),
    // By date: autumn 2024.
    key(Id::PinnedUseBackgroundThreads, "pinned_use_background_threads", 6, Shape::Boolean, Common),
    // By date: October 2025.
    key(
        Id::PinnedReserveSegmentSize,
        "pinned_reserve_segment_size_mb",
        10,
        Shape::Megabytes,
        Device,
    ),
    key(Id::PinnedFreeCatchAll, "pinned_free_catch_all", 12, Shape::Boolean, Device),
    // Chosen: seen only in texts of mid 2026 and later.
    key(Id::PinnedMaxRoundThreshold, "pinned_max_round_threshold_mb", 13, Shape::Megabytes, Common),
    key(Id::PinnedMaxCachedSize, "pinned_max_cached_size_mb", 13, Shape::Megabytes, Common),
    // Chosen: seen only in the newest texts, later than 2.13.
    key(Id::ExpandableSegmentsReserve, "expandable_segments_reserve", 14, Shape::Reserve, Device),
    key(
        Id::ExpandableSegmentsReserveByClass,
        "expandable_segments_reserve_by_class",
        14,
        Shape::ReserveList,
        Device,
    ),
];

/// First 2.x release in which a value of 0 in a roundup list means "no rounding". By the texts:
/// absent in 2.5-era ones, present in all with `max_non_split_rounding_mb`.
pub(super) const ROUNDUP_ZERO_SINCE: u16 = 6;

impl Key {
    /// Whether that release knows the option. Releases before 2.0 are treated as 2.0.
    pub(super) const fn known_in(&self, version: TorchVersion) -> bool {
        self.since == 0 || version.at_least_2(self.since)
    }

    /// The release that brought it.
    pub(super) const fn since(&self) -> TorchVersion {
        TorchVersion::new(2, self.since)
    }
}

/// The option of that exact name, whatever the version.
pub(super) fn named(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

/// The option of that exact name, if that release knows it.
pub(super) fn known(name: &str, version: TorchVersion) -> Option<&'static Key> {
    named(name).filter(|k| k.known_in(version))
}

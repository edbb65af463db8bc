//! The allocator settings under which the programs are recorded.

/// One of them.
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// As in `PYTORCH_CUDA_ALLOC_CONF`.
    pub(super) conf: &'static str,
    /// Minor number of the first 2.x release that knows it.
    since: u32,
}

impl Setting {
    /// Whether a release such as `2.9.1` knows the setting.
    pub(super) fn known_in(&self, torch: &str) -> bool {
        let minor = torch.split('.').nth(1).and_then(|minor| minor.parse().ok());
        minor.is_some_and(|minor: u32| self.since <= minor)
    }
}

const fn setting(name: &'static str, conf: &'static str, since: u32) -> Setting {
    Setting { name, conf, since }
}

/// All of them: every option that changes what is allocated, alone and with others. Not among them is
/// `expandable_segments_reserve` of 2.14 and later, which the model reads but does not follow.
pub(super) const SETTINGS: &[Setting] = &[
    setting("default", "", 0),
    setting("split24", "max_split_size_mb:24", 0),
    setting("split100", "max_split_size_mb:100", 0),
    setting("split300", "max_split_size_mb:300", 0),
    setting("round2", "roundup_power2_divisions:2", 0),
    setting("round8", "roundup_power2_divisions:8", 0),
    setting("roundlist", "roundup_power2_divisions:[128:1,256:2,1024:4,>:8]", 0),
    setting("gc50", "garbage_collection_threshold:0.5", 0),
    setting("gc75split100", "garbage_collection_threshold:0.75,max_split_size_mb:100", 0),
    setting("split300round4", "max_split_size_mb:300,roundup_power2_divisions:4", 0),
    setting("nonsplit", "max_split_size_mb:48,max_non_split_rounding_mb:40", 6),
    setting("expandable", "expandable_segments:True", 1),
    setting("expandableround8", "expandable_segments:True,roundup_power2_divisions:8", 1),
    setting("expandablegc60", "expandable_segments:True,garbage_collection_threshold:0.6", 1),
    setting("expandablesplit100", "expandable_segments:True,max_split_size_mb:100", 1),
    setting("reuse", "graph_capture_record_stream_reuse:True", 9),
    setting("fraction", "per_process_memory_fraction:0.4", 10),
    setting("large12", "large_segment_size_mb:12", 11),
    setting("throw", "throw_on_cudamalloc_oom:True", 12),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_recorded_only_where_it_is_known() {
        let reuse = setting("reuse", "", 9);
        assert!(reuse.known_in("2.9.1"));
        assert!(reuse.known_in("2.13.0"));
        assert!(!reuse.known_in("2.6.0"));
    }
}

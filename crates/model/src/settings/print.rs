//! Settings as a string again, and in words.

use vramwise_types::{Human, TorchVersion};

use super::keys::{self, ROUNDUP_ZERO_SINCE};
use super::parse::{backend_name, parse_raw};
use super::{Backend, Config, Dialect, ROUNDUP_BUCKETS};

const MIB: u64 = 1 << 20;

impl Config {
    /// The shortest string that gives these settings under that release: only the options that
    /// change where a block goes or what is asked of the device, and of those only what differs
    /// from the default.
    ///
    /// Options that the release does not know, and values that no string can express, are left out;
    /// see [`Config::is_expressible`].
    pub fn to_conf_string(&self, version: TorchVersion) -> String {
        self.print(version, false)
    }

    /// As [`Config::to_conf_string`], with the options for host memory and locking too.
    pub fn to_full_conf_string(&self, version: TorchVersion) -> String {
        self.print(version, true)
    }

    /// Whether a string exists that gives exactly these settings to a process of that release that
    /// starts.
    pub fn is_expressible(&self, version: TorchVersion) -> bool {
        let text = self.to_full_conf_string(version);
        parse_raw(None, &text, version).is_ok_and(|p| p.config == *self)
    }

    fn print(&self, version: TorchVersion, full: bool) -> String {
        let default = Config::default();
        let mut out = Printer { version, parts: Vec::new() };
        if self.backend != default.backend {
            out.push("backend", backend_name(self.backend));
        }
        out.flag("expandable_segments", self.expandable_segments);
        if self.large_segment_size != default.large_segment_size {
            out.megabytes("large_segment_size_mb", self.large_segment_size);
        }
        if self.max_split_size != default.max_split_size {
            out.megabytes("max_split_size_mb", self.max_split_size);
        }
        // Its default follows the large segment size from 2.11 on.
        let rounding_default = if version.at_least_2(11) {
            self.large_segment_size
        } else {
            default.max_non_split_rounding
        };
        if self.max_non_split_rounding != rounding_default {
            out.megabytes("max_non_split_rounding_mb", self.max_non_split_rounding);
        }
        if let Some(divisions) = divisions(&self.roundup_power2_divisions, version) {
            out.push("roundup_power2_divisions", divisions);
        }
        if self.garbage_collection_threshold != 0.0 {
            out.push("garbage_collection_threshold", self.garbage_collection_threshold);
        }
        if self.per_process_memory_fraction != 1.0 {
            out.push("per_process_memory_fraction", self.per_process_memory_fraction);
        }
        out.flag("throw_on_cudamalloc_oom", self.throw_on_cudamalloc_oom);
        out.flag("graph_capture_record_stream_reuse", self.graph_capture_record_stream_reuse);
        if full {
            self.print_rest(&mut out);
        }
        out.parts.join(",")
    }

    fn print_rest(&self, out: &mut Printer) {
        out.flag("release_lock_on_cudamalloc", self.release_lock_on_cudamalloc);
        out.flag("pinned_use_cuda_host_register", self.pinned_use_cuda_host_register);
        if self.pinned_num_register_threads != 1 {
            out.push("pinned_num_register_threads", self.pinned_num_register_threads);
        }
        out.flag("pinned_use_background_threads", self.pinned_use_background_threads);
        if self.pinned_reserve_segment_size != 0 {
            out.megabytes("pinned_reserve_segment_size_mb", self.pinned_reserve_segment_size);
        }
    }

    /// What these settings mean, a sentence each; the defaults are not mentioned.
    pub fn describe(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.backend == Backend::CudaMallocAsync {
            out.push("the driver's stream-ordered allocator instead of PyTorch's; every other option is ignored".to_owned());
            return out;
        }
        if self.expandable_segments {
            out.push("segments grow and shrink in place (expandable segments)".to_owned());
        }
        if self.large_segment_size != Self::LARGE_SEGMENT_DEFAULT {
            out.push(format!(
                "requests above 1 MiB and below 10 MiB share segments of {}",
                Human(self.large_segment_size)
            ));
        }
        if self.max_split_size != u64::MAX {
            let (limit, extra) = (Human(self.max_split_size), Human(self.max_non_split_rounding));
            out.push(format!(
                "blocks of {limit} and more are not split, and serve only requests of at least {limit} that are less than {extra} smaller than the block"
            ));
        }
        if self.roundup_power2_divisions.iter().any(|d| *d > 1) {
            out.push(format!(
                "sizes are rounded up in steps of a power of two: {}",
                steps(&self.roundup_power2_divisions)
            ));
        }
        if self.garbage_collection_threshold > 0.0 {
            out.push(format!(
                "above {} of the allowed memory, cached blocks that were not used for long are given back (only if a memory fraction below 1 is set)",
                self.garbage_collection_threshold
            ));
        }
        if self.per_process_memory_fraction < 1.0 {
            out.push(format!(
                "the process may hold {} of the card",
                self.per_process_memory_fraction
            ));
        }
        if self.throw_on_cudamalloc_oom {
            out.push(
                "requests beyond the limit are rejected before the driver is asked".to_owned(),
            );
        }
        if self.graph_capture_record_stream_reuse {
            out.push("blocks used on other streams are reused during graph capture".to_owned());
        }
        if self.release_lock_on_cudamalloc {
            out.push("other threads may allocate while the driver is asked for memory".to_owned());
        }
        if self.pinned_use_cuda_host_register
            || self.pinned_use_background_threads
            || self.pinned_reserve_segment_size > 0
        {
            out.push(
                "pinned host memory is handled differently; device memory is not affected"
                    .to_owned(),
            );
        }
        out
    }
}

struct Printer {
    version: TorchVersion,
    parts: Vec<String>,
}

impl Printer {
    fn push(&mut self, name: &str, value: impl std::fmt::Display) {
        if keys::known(name, self.version).is_some() {
            self.parts.push(format!("{name}:{value}"));
        }
    }

    fn flag(&mut self, name: &str, on: bool) {
        if on {
            self.push(name, "True");
        }
    }

    /// Whole MiB only, and up to 2.9 only what a C `int` holds; other sizes have no string. The
    /// largest size of all is what -1 wraps to.
    fn megabytes(&mut self, name: &str, bytes: u64) {
        let mb = bytes / MIB;
        if mb == u64::MAX / MIB && bytes.is_multiple_of(MIB) {
            self.push(name, -1);
        } else if bytes.is_multiple_of(MIB)
            && (mb <= i32::MAX as u64 || Dialect::of(self.version) == Dialect::Unified)
        {
            self.push(name, mb);
        }
    }
}

/// The shortest value of `roundup_power2_divisions` that gives this table, if it needs one and has
/// one.
fn divisions(table: &[u64; ROUNDUP_BUCKETS], version: TorchVersion) -> Option<String> {
    if table.iter().all(|d| *d == 0) {
        return None;
    }
    if table.iter().all(|d| *d == table[0]) {
        return table[0].is_power_of_two().then(|| table[0].to_string());
    }
    let fits = |text: &String| {
        let whole = format!("roundup_power2_divisions:{text}");
        parse_raw(None, &whole, version).is_ok_and(|p| p.config.roundup_power2_divisions == *table)
    };
    let zero_is_legal = version.at_least_2(ROUNDUP_ZERO_SINCE);
    lists(table, version, zero_is_legal).into_iter().filter(fits).min_by_key(String::len)
}

/// Candidate lists: with and without a `>` entry, and the arrow alone.
fn lists(
    table: &[u64; ROUNDUP_BUCKETS],
    version: TorchVersion,
    zero_is_legal: bool,
) -> Vec<String> {
    let last = ROUNDUP_BUCKETS - 1;
    // Buckets 0..=head have the first value; buckets tail.. the last value.
    let head = table.iter().position(|d| *d != table[0]).map_or(last, |i| i - 1);
    let tail = table.iter().rposition(|d| *d != table[last]).map_or(0, |i| i + 1);
    let entry = |i: usize| format!("{}:{}", 1_u64 << i, table[i]);
    let arrow = format!(">:{}", table[last]);
    let middle = |to: usize| (head + 1..to).filter(|i| table[*i] != 0).map(entry);

    let mut with_arrow = vec![entry(head)];
    match Dialect::of(version) {
        // The arrow begins behind the last interval named, so the one before it has to be named.
        Dialect::Unified => {
            with_arrow.extend(middle(tail.saturating_sub(1)));
            if tail > head + 1 {
                with_arrow.push(entry(tail - 1));
            }
        }
        // The arrow begins with the last interval named.
        Dialect::Checked => {
            with_arrow.extend(middle(tail));
            with_arrow.push(entry(tail));
        }
    }
    with_arrow.push(arrow.clone());
    let mut plain = vec![entry(head)];
    plain.extend(middle(ROUNDUP_BUCKETS));

    let mut lists = vec![vec![arrow], with_arrow, plain];
    if !zero_is_legal {
        // Then only gaps can say 0, and a first value of 0 cannot be said.
        lists.iter_mut().for_each(|l| l.retain(|e| !e.ends_with(":0")));
    }
    lists.into_iter().map(|l| format!("[{}]", l.join(","))).collect()
}

/// `below 256 MiB 1, from 256 MiB 2, …` with runs of equal values folded.
fn steps(table: &[u64; ROUNDUP_BUCKETS]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (i, divisions) in table.iter().enumerate() {
        if i > 0 && table[i - 1] == *divisions {
            continue;
        }
        let from = if i == 0 {
            "from the smallest".to_owned()
        } else {
            format!("from {}", Human(MIB << i))
        };
        let how = if *divisions > 1 { format!("{divisions} steps") } else { "none".to_owned() };
        parts.push(format!("{from} {how}"));
    }
    parts.join(", ")
}

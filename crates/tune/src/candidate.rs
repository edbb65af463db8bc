//! What is known of one setting.

use vramwise_model::settings::Config;

/// Numbers of device calls, as the driver sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCalls {
    /// `cudaMalloc`.
    pub malloc: u64,
    /// `cudaFree`.
    pub free: u64,
    /// Map operations of expandable segments.
    pub map: u64,
    /// Unmap operations of expandable segments.
    pub unmap: u64,
}

impl DeviceCalls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.malloc + self.free + self.map + self.unmap
    }
}

/// A setting with the figures of its replays; over several programs the worst of each.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The setting.
    pub config: Config,
    /// The setting as people write it; empty for PyTorch's defaults.
    pub conf: String,
    /// Highest bytes held, with the driver's addresses as modelled.
    pub peak_reserved: u64,
    /// Most that was in use at one time in the program that held most: what its peak is compared with.
    pub live_of_peak: u64,
    /// Lowest and highest of `peak_reserved` over the address orders tried.
    pub peak_reserved_range: (u64, u64),
    /// Highest bytes handed out (rounding included).
    pub peak_allocated: u64,
    /// Replays with a failed request, of all under the capacity.
    pub oom_runs: usize,
    /// Requests that failed, summed over the replays.
    pub failed_requests: usize,
    /// Replays of each program and variation.
    pub runs: usize,
    /// Largest free block when most was held, bytes.
    pub largest_free_block: u64,
    /// Free pieces of split segments when most was held, bytes.
    pub inactive_split: u64,
    /// Flushes of the whole cache before a request was served.
    pub retries: u64,
    /// Device calls, summed over the programs.
    pub device_calls: DeviceCalls,
    /// Estimated milliseconds of those calls on an idle H200.
    pub device_ms: f64,
    /// Smallest limit under which every program still runs; `None` = not looked for.
    pub smallest_capacity: Option<u64>,
    /// Whether another candidate is at least as good in everything and better in something.
    pub dominated: bool,
    /// Lookups in which only the address decided.
    pub ties: u64,
}

impl Candidate {
    /// Share of replays with a failed request.
    #[allow(clippy::cast_precision_loss)] // numbers of runs are small
    pub fn oom_rate(&self) -> f64 {
        if self.runs == 0 { 0.0 } else { self.oom_runs as f64 / self.runs as f64 }
    }

    /// The peak that can be relied on: the worst over the address orders.
    pub fn worst_peak(&self) -> u64 {
        self.peak_reserved_range.1
    }

    /// Number of options that differ from PyTorch's defaults.
    pub fn options(&self) -> usize {
        if self.conf.is_empty() { 0 } else { self.conf.matches(':').count() }
    }
}

/// Marks every candidate that another one makes pointless.
pub(crate) fn mark_dominated(candidates: &mut [Candidate]) {
    let figures = |c: &Candidate| {
        (
            c.oom_runs,
            c.worst_peak(),
            c.device_calls.total(),
            c.smallest_capacity.unwrap_or(u64::MAX),
        )
    };
    let all: Vec<_> = candidates.iter().map(|c| (figures(c), c.options())).collect();
    let fewest = all.iter().map(|(figures, _)| figures.0).min().unwrap_or(0);
    for (i, candidate) in candidates.iter_mut().enumerate() {
        let (own, options) = all[i];
        // what fails more often than another is no choice, however cheap it is
        candidate.dominated = own.0 > fewest
            || all.iter().enumerate().any(|(j, (other, other_options))| {
                let no_worse = other.0 <= own.0
                    && other.1 <= own.1
                    && other.2 <= own.2
                    && (other.3 <= own.3 || own.3 == u64::MAX);
                let differs = (other.0, other.1, other.2) != (own.0, own.1, own.2);
                // of settings that do the same the simplest and earliest stays
                let simpler = (*other_options, j) < (options, i);
                j != i && no_worse && (differs || simpler)
            });
    }
}

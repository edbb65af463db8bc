//! What to do about it, in order of effect. Nothing is advised that is already in force.

use vramwise_types::{Human, MIB, TorchVersion};

use super::cause::Cause;
use super::diagnose::{Case, Diagnosis};
use super::event::{Hint, Kind};
use super::knowledge as known;
use super::phase::{Phase, Techniques};

mod capacity;
mod elsewhere;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do, in the imperative.
    pub action: String,
    /// Why it should help here.
    pub evidence: String,
}

/// Collects advice for one event.
pub(super) struct Adviser<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) found: &'a Diagnosis,
    pub(super) techniques: Techniques,
    /// The release, as far as the log and the text tell: the oldest possible.
    pub(super) oldest: Option<TorchVersion>,
    out: Vec<Advice>,
}

/// Advice for an event whose cause is found.
pub(super) fn advise<'a>(
    case: &'a Case<'a>,
    found: &'a Diagnosis,
    techniques: Techniques,
    oldest: Option<TorchVersion>,
) -> Vec<Advice> {
    let mut adviser = Adviser { case, found, techniques, oldest, out: Vec::new() };
    adviser.run();
    adviser.out
}

impl Adviser<'_> {
    fn add(&mut self, action: impl Into<String>, evidence: impl Into<String>) {
        self.out.push(Advice { action: action.into(), evidence: evidence.into() });
    }

    fn run(&mut self) {
        match self.found.cause {
            Cause::TrueCapacity => self.capacity(),
            Cause::RequestLargerThanCard => self.larger_than_card(),
            Cause::AbsurdRequest => self.absurd(),
            Cause::Fragmentation => self.fragmentation(),
            Cause::PrivatePools => self.private_pools(),
            Cause::OtherProcess => self.other_process(),
            Cause::MemoryLimit => self.memory_limit(),
            Cause::SystemMemorySpill | Cause::MoreThanCard => self.spill(),
            Cause::RefusedAlthoughFree => self.refused(),
            Cause::SingleAllocationLimit => self.single_allocation(),
            Cause::OwnOutsidePytorch => self.own_outside(),
            Cause::OutsidePytorch => self.outside(),
            Cause::RuntimeHeap => self.runtime_heap(),
            Cause::HostMemory | Cause::PinnedMemory | Cause::ProcessKilled => self.host(),
            Cause::MpsLimit | Cause::MpsOtherAllocations => self.mps(),
            Cause::EngineBudget => self.engine(),
            Cause::MaskedError => self.masked(),
            Cause::SettingsConflict => self.conflict(),
            Cause::NotOutOfMemory => self.not_memory(),
            Cause::OtherFramework => self.other_framework(),
            Cause::PendingFree | Cause::Unknown => self.unknown(),
        }
        self.hint_is_wrong();
        if self.case.event.times > 1 && self.case.event.kind.is_caching_allocator() {
            self.add(
                "leave the except block before trying again, and drop what it holds",
                format!(
                    "the same error occurs {} times; {} ({})",
                    self.case.event.times,
                    known::TRACEBACK_HOLDS.says,
                    known::TRACEBACK_HOLDS.source
                ),
            );
        }
    }

    fn phase(&self) -> Option<Phase> {
        self.case.phase.map(|(phase, _)| phase)
    }

    fn larger_than_card(&mut self) {
        self.add(
            "find the line that asks for it in the traceback, and do the work in pieces",
            "a single tensor of this size comes from a batch, an image or an attention matrix that is not split".to_owned(),
        );
        self.add(
            "use memory-efficient attention (torch.nn.functional.scaled_dot_product_attention) or tiled decoding",
            "attention matrices and full-size decoders are the usual single requests of this size".to_owned(),
        );
        if self.case.event.kind == Kind::Hip && self.case.account.allocated == Some(0) {
            self.add(
                "on an integrated GPU, set more memory aside for it in the firmware, or use a build that allocates from the shared pool",
                format!("{} ({})", known::APU_MEMORY.says, known::APU_MEMORY.source),
            );
        }
    }

    fn absurd(&mut self) {
        self.add(
            "print the shapes that go into the failing line",
            "a size like this comes from multiplying the wrong dimensions, or from an index that is not initialised".to_owned(),
        );
    }

    /// Whether expandable segments can be advised: not in force, and the platform and the release
    /// have them.
    fn can_expand(&self) -> bool {
        let around = self.case.around;
        let in_force = around.expandable().is_some();
        let old = self.oldest.is_some_and(|v| !v.at_least_2(1));
        let kind = match self.case.event.kind {
            Kind::Cuda => true,
            Kind::Hip => self.oldest.is_some_and(|v| v.at_least_2(12)),
            _ => false,
        };
        kind && !in_force && !old && !around.windows && !around.wsl
    }

    fn fragmentation(&mut self) {
        let a = &self.case.account;
        let (tried, cached) = (a.tried.unwrap_or(0), a.cached.unwrap_or(0));
        let old = self.oldest.is_some_and(|v| v.major < 2);
        if self.can_expand() {
            self.add(
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts",
                format!(
                    "{} of {} cached would do; {} ({})",
                    Human(tried.saturating_sub(a.free.unwrap_or(0))),
                    Human(cached),
                    known::EXPANDABLE.says,
                    known::EXPANDABLE.source
                ),
            );
        } else if self.case.around.expandable().is_some() {
            let settings = self.case.around.expandable().map_or(0, |s| s.line);
            self.add(
                "look for the blocks that stay alive: record a snapshot and open it with 'vramwise inspect'",
                format!("expandable segments are in force (line {settings}) and {} is still cached: what is left lies within pieces of 20 MiB that live blocks hold", Human(cached)),
            );
        }
        let split_in_force = self.case.around.in_force(|c| c.max_split_size != u64::MAX).is_some();
        let cuda_like = matches!(
            self.case.event.kind,
            Kind::Cuda | Kind::Hip | Kind::Npu | Kind::OtherAccelerator
        );
        if !split_in_force && cuda_like && self.case.around.expandable().is_none() {
            let limit = split_limit(tried);
            let variable = match self.case.event.kind {
                Kind::Npu => "PYTORCH_NPU_ALLOC_CONF",
                Kind::Hip => "PYTORCH_HIP_ALLOC_CONF",
                _ => "PYTORCH_CUDA_ALLOC_CONF",
            };
            let instead = if self.out.is_empty() { "" } else { "or, instead, " };
            self.add(
                format!("{instead}set {variable}=max_split_size_mb:{limit} before the program starts"),
                format!("{}; {limit} MiB is below this request of {}, so segments of its size stay whole ({})", known::SPLIT_LIMIT.says, Human(tried), known::SPLIT_LIMIT.source),
            );
        }
        if self.phase() == Some(Phase::Optimizer) {
            self.add(
                "use the optimizer with foreach=False or fused=True",
                format!("{} ({})", known::ADAM_STATES.says, known::ADAM_STATES.source),
            );
        }
        if self.oldest.is_some_and(|v| !v.at_least_2(1))
            && self.case.event.kind == Kind::Cuda
            && !self.case.around.windows
        {
            self.add(
                "or update PyTorch to 2.1 or later and set expandable_segments:True",
                format!("{} ({})", known::EXPANDABLE.says, known::EXPANDABLE.source),
            );
        }
        if !old {
            self.add(
                "record a snapshot and let 'vramwise tune' replay it under each setting",
                "only a replay proves which setting lets this request pass".to_owned(),
            );
        }
        self.add(
            "keep sizes from varying: pad batches to few lengths, allocate the largest first, run evaluation at the training sizes",
            "pieces that no request fits come from sizes that change from step to step".to_owned(),
        );
    }

    fn private_pools(&mut self) {
        let private = Human(self.case.account.private);
        self.add(
            "capture fewer or smaller CUDA graphs (torch.compile: mode without cudagraphs; vLLM: smaller capture sizes or --enforce-eager)",
            format!("{private} lies unused in private pools; {} ({})", known::PRIVATE_POOLS.says, known::PRIVATE_POOLS.source),
        );
        self.add(
            "let graphs that never run at the same time share one pool (torch.cuda.graph_pool_handle)",
            "a shared pool needs the largest of them, not their sum".to_owned(),
        );
    }

    fn other_process(&mut self) {
        let gpu = self.case.event.numbers.gpu.map_or(String::new(), |g| format!(" on GPU {g}"));
        self.add(
            format!(
                "find the other processes{gpu} with nvidia-smi and end those that should not run"
            ),
            "they hold what is missing; crashed jobs and notebooks often stay".to_owned(),
        );
        self.add(
            "choose another card with CUDA_VISIBLE_DEVICES",
            "no setting of this process can take back what others hold".to_owned(),
        );
        if self.case.around.data_parallel || self.case.event.rank.is_some() {
            self.add(
                "check that each rank uses its own card (torch.cuda.set_device(local_rank) before the first CUDA call)",
                "ranks that all begin on the first card fill it with contexts and copies".to_owned(),
            );
        }
    }

    fn memory_limit(&mut self) {
        self.add(
            "raise or remove the limit: set_per_process_memory_fraction, per_process_memory_fraction in the settings, or the tool that sets it",
            format!("{} ({})", known::FRACTION.says, known::FRACTION.source),
        );
        if let Some(found) = self.case.around.in_force(|c| c.per_process_memory_fraction < 1.0) {
            self.add(
                format!("change per_process_memory_fraction in '{}'", found.text),
                format!("line {} of the log sets it", found.line),
            );
        }
    }

    fn spill(&mut self) {
        self.add(
            "make the work fit on the card: a smaller batch or resolution, a smaller or quantised model, offloading of idle parts",
            self.found.why.first().cloned().unwrap_or_default(),
        );
        if self.found.cause == Cause::MoreThanCard {
            self.add(
                "find out where the rest lies: nvidia-smi while the program runs, and on Windows 'shared GPU memory' in the task manager",
                "the reasons above say which observation points to what".to_owned(),
            );
            return;
        }
        self.add(
            "forbid the spill (NVIDIA control panel, CUDA - Sysmem Fallback Policy: prefer no fallback)",
            format!("the error then comes at once and not after a slow run; {} ({})", known::SPILL.says, known::SPILL.source),
        );
        if self.case.around.engine == Some("ComfyUI") {
            self.add(
                "start ComfyUI with --lowvram, or with fewer models loaded",
                "it then moves idle models to the host".to_owned(),
            );
        }
        self.larger_card();
    }

    fn refused(&mut self) {
        self.add(
            "try again, and watch nvidia-smi while it runs",
            "if another process is the reason, the free figure will jump".to_owned(),
        );
        if self.case.around.wsl || !self.case.event.numbers.impossible.is_empty() {
            self.add(
                "under WSL2 give the virtual machine more memory (.wslconfig) and close other programs that use the GPU",
                "there the driver needs system memory behind what it grants".to_owned(),
            );
        }
        self.add(
            "look for limits outside PyTorch: a container's, a virtual GPU's or MIG slice's, ulimit -v, overcommit",
            "PyTorch prints no limit, so the driver or the system refused".to_owned(),
        );
        if self.oldest.is_none_or(|v| v.at_least_2(0)) && self.case.event.kind == Kind::Cuda {
            self.add(
                "if it passes on an immediate retry, report it: that would be a defect of the allocator",
                "a request that fits into what is free should be granted".to_owned(),
            );
        }
    }

    fn single_allocation(&mut self) {
        if self.case.event.kind == Kind::Mps {
            self.add(
                "split the tensor, or run this part on the CPU",
                "Metal limits the size of one buffer".to_owned(),
            );
            return;
        }
        self.add(
            "ask for relaxed allocation limits (environment UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1, where the build supports it), or split the tensor",
            format!("{} ({})", known::XPU_SINGLE.says, known::XPU_SINGLE.source),
        );
    }

    /// Says so where PyTorch's own hint does not apply.
    fn hint_is_wrong(&mut self) {
        let Some(hint) = self.case.event.hint else { return };
        // Without the figure of what is free nothing excludes fragmentation.
        if self.found.cause == Cause::TrueCapacity && self.case.account.free.is_none() {
            return;
        }
        if self.found.cause == Cause::Fragmentation || self.found.cause == Cause::Unknown {
            return;
        }
        let name = match hint {
            Hint::ExpandableSegments => "expandable_segments:True",
            Hint::MaxSplitSize => "max_split_size_mb",
        };
        self.add(
            format!(
                "do not expect anything of {name}, which PyTorch's text recommends in every case"
            ),
            match (self.case.account.cached, self.case.account.tried) {
                (Some(cached), Some(tried)) => format!(
                    "it can only win back some of the {} that is cached, and {} was asked for",
                    Human(cached),
                    Human(tried)
                ),
                _ => "it helps against fragmentation only".to_owned(),
            },
        );
    }
}

/// A limit that keeps segments for requests of this size whole: a power of two below it, from 32 to
/// 512 MiB.
fn split_limit(tried: u64) -> u64 {
    let mb = (tried / MIB).max(1);
    let below = 1_u64 << mb.ilog2();
    let strictly = if below == mb { below / 2 } else { below };
    strictly.clamp(32, 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramwise_types::GIB;

    #[test]
    fn the_split_limit_lies_below_the_request() {
        assert_eq!(split_limit(GIB), 512);
        assert_eq!(split_limit(300 * MIB), 256);
        assert_eq!(split_limit(256 * MIB), 128);
        assert_eq!(split_limit(2 * MIB), 32);
    }
}

//! What to do about it, in order of effect. Nothing is advised that is already in force.

use vramwise_types::{GIB, Human, MIB, TorchVersion};

use super::account::context_most;
use super::cause::Cause;
use super::diagnose::{Case, Diagnosis};
use super::event::{Form, Hint, Kind};
use super::knowledge as known;
use super::surroundings::{Phase, Techniques};

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
            Cause::SystemMemorySpill => self.spill(),
            Cause::RefusedAlthoughFree => self.refused(),
            Cause::SingleAllocationLimit => self.single_allocation(),
            Cause::OutsidePytorch => self.outside(),
            Cause::HostMemory | Cause::PinnedMemory | Cause::ProcessKilled => self.host(),
            Cause::MpsLimit | Cause::MpsOtherAllocations => self.mps(),
            Cause::EngineBudget => self.engine(),
            Cause::MaskedError => self.masked(),
            Cause::SettingsConflict => self.conflict(),
            Cause::NotOutOfMemory => self.not_memory(),
            Cause::OtherFramework => self.other_framework(),
            Cause::Unknown => self.unknown(),
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

    fn short(&self) -> String {
        match self.case.account.shortfall() {
            Some(short) => format!("{} is missing", Human(short)),
            None => "the card is full of live memory".to_owned(),
        }
    }

    fn capacity(&mut self) {
        self.by_phase();
        let small = self.case.account.tried.is_some_and(|t| t < 512 * MIB);
        let training = !matches!(self.phase(), Some(Phase::Inference | Phase::Loading));
        if training && !self.techniques.batch_of_one && self.phase() != Some(Phase::Optimizer) {
            self.add(
                "make the batch (or the sequence) smaller; accumulate gradients if the size matters",
                format!("activations grow with it, and {}", self.short()),
            );
        }
        if training && !self.techniques.checkpointing && self.phase() != Some(Phase::Optimizer) {
            self.add(
                "checkpoint activations (torch.utils.checkpoint, use_reentrant=False)",
                format!("{} ({})", known::CHECKPOINTING.says, known::CHECKPOINTING.source),
            );
        }
        if training && !self.techniques.autocast {
            self.add(
                "train in bfloat16 (torch.autocast)",
                "activations take half the bytes; parameters and optimizer states stay as they are"
                    .to_owned(),
            );
        }
        if !training && !self.techniques.quantised {
            self.add(
                "load the weights in a smaller type (bfloat16, 8 or 4 bits)",
                "weights are what is live while a model is loaded or serves".to_owned(),
            );
        }
        if !self.techniques.sharding {
            self.add(
                "spread the model over several cards (FSDP, tensor parallel), or offload parts to the host",
                "each card then holds a part of parameters, gradients and optimizer states".to_owned(),
            );
        }
        self.larger_card();
        if small && self.oldest.is_none_or(|v| v.major >= 2) {
            self.add(
                "record a snapshot (torch.cuda.memory._record_memory_history, then _dump_snapshot) and open it with 'vramwise inspect'",
                "the request that failed is small: it shows who came last, not who holds the memory".to_owned(),
            );
        }
    }

    fn phase(&self) -> Option<Phase> {
        self.case.phase.map(|(phase, _)| phase)
    }

    fn by_phase(&mut self) {
        match self.phase() {
            Some(Phase::Loss) => self.add(
                "compute the loss in chunks, or with a fused linear cross-entropy",
                "the logits hold a value for every token and every word, and the loss needs them in float32 once more".to_owned(),
            ),
            Some(Phase::Optimizer) => self.optimizer(),
            Some(Phase::Inference) => self.add(
                "shorten the context or the number of parallel requests",
                "the key-value cache grows with both".to_owned(),
            ),
            _ => {}
        }
    }

    fn optimizer(&mut self) {
        self.add(
            "use the optimizer with foreach=False or fused=True",
            format!("{} ({})", known::ADAM_STATES.says, known::ADAM_STATES.source),
        );
        if !self.techniques.small_optimizer {
            self.add(
                "use an 8-bit or factored optimizer, or shard its states (ZeRO, FSDP)",
                "Adam's two states take 8 bytes for each parameter in float32".to_owned(),
            );
        }
    }

    /// The smallest usual card that would have held it.
    fn larger_card(&mut self) {
        let a = &self.case.account;
        let (Some(total), Some(tried)) = (a.total, a.tried) else { return };
        let Some(held) = a.reserved.max(a.allocated) else { return };
        let live = a.allocated.unwrap_or(held).min(held);
        let need = live.saturating_add(tried).saturating_add(context_most(total));
        // A card reports some per cent less than its name says.
        let sizes = [4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192, 288];
        let usable = |size: u64| size / 100 * 97;
        if let Some(size) =
            sizes.iter().map(|g| g * GIB).find(|s| usable(*s) > need && usable(*s) > total)
        {
            self.add(
                format!("take a card of {} or more", Human(size)),
                format!(
                    "{} live + {} asked for + up to {} for the context = {}; what the program asks for after that is not known",
                    Human(live), Human(tried), Human(context_most(total)), Human(need)
                ),
            );
        }
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

    /// Whether expandable segments can be advised: not in force, and the platform and the release have them.
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

    fn outside(&mut self) {
        self.add(
            "leave memory free for libraries: lower the batch or the engine's share, or limit PyTorch with set_per_process_memory_fraction",
            format!("{} ({})", known::DIRECT_USERS.says, known::DIRECT_USERS.source),
        );
        if matches!(self.case.event.kind, Kind::Cublas | Kind::Cudnn | Kind::Nccl) {
            self.add(
                "use the library once before the model fills the card (a small matrix product, a first collective)",
                "its handle and buffers are then allocated while there is room".to_owned(),
            );
        }
        self.add(
            "check with nvidia-smi whether other processes use the card",
            "the text names no holder".to_owned(),
        );
        if matches!(self.case.event.form, Form::DriverError | Form::Thc) {
            self.add(
                "run once with CUDA_LAUNCH_BLOCKING=1 to learn which call failed",
                format!("{} ({})", known::ASYNC_ERRORS.says, known::ASYNC_ERRORS.source),
            );
        }
    }

    fn host(&mut self) {
        match self.found.cause {
            Cause::PinnedMemory => {
                self.add("read the error behind 'Original Traceback'", "this line only forwards it".to_owned());
                self.add("set pin_memory=False once, to see whether it goes away", "then pinning is the cause".to_owned());
                return;
            }
            Cause::ProcessKilled => self.add(
                "give the job more host memory, or use fewer data loader workers",
                "the system chooses the process with the most host memory; each worker holds a copy of what it touches".to_owned(),
            ),
            _ => self.add(
                "use less host memory: smaller chunks, fewer data loader workers, memory-mapped files",
                self.found.why.first().cloned().unwrap_or_default(),
            ),
        }
        self.add(
            "check the limit of the container or the job as well as the machine's memory",
            "allocator settings for the GPU have no effect on host memory".to_owned(),
        );
    }

    fn mps(&mut self) {
        if self.found.cause == Cause::MpsOtherAllocations {
            self.add(
                "close other programs, and free NumPy arrays and images of the same process",
                "the larger part of the limit is used outside PyTorch's allocator".to_owned(),
            );
        }
        self.add(
            "use a smaller model, batch or resolution, or half precision",
            self.found.why.first().cloned().unwrap_or_default(),
        );
        let limit =
            self.case.account.allowed.map_or(String::new(), |l| format!(" of {}", Human(l)));
        match self.case.around.mps_ratio_line {
            Some(line) => self.add(
                "set PYTORCH_MPS_HIGH_WATERMARK_RATIO in the shell that starts the process, not in the program",
                format!("line {line} sets it, yet the limit{limit} is in force: it was read before ({})", known::MPS_LIMIT.source),
            ),
            None => self.add(
                "as a last resort start the process with PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 in its environment",
                format!("{}; without a limit the system may start to swap ({})", known::MPS_LIMIT.says, known::MPS_LIMIT.source),
            ),
        }
    }

    fn engine(&mut self) {
        let a = &self.case.account;
        if let (Some(free), Some(total)) = (a.free, a.total)
            && self.case.event.form == Form::EngineStartup
        {
            let share = (free as f64 / total.max(1) as f64 * 100.0).floor() / 100.0;
            self.add(
                format!("lower gpu_memory_utilization to {share:.2} or less, or end the processes that hold the rest"),
                format!("{} / {} = {share:.2}", Human(free), Human(total)),
            );
            return;
        }
        self.add(
            "shorten the maximum context (max_model_len), or raise the engine's share of the card if it is free",
            "weights, activations and the key-value cache share one budget".to_owned(),
        );
    }

    fn masked(&mut self) {
        if self.case.event.form == Form::NvmlAssertion {
            self.add(
                "treat it as an out-of-memory error: a smaller batch first",
                format!("{} ({})", known::NVML_MASKS.says, known::NVML_MASKS.source),
            );
            self.add(
                "record a snapshot when it is raised, or look at torch.cuda.memory_summary() before the failing step",
                "the figures that the text lost are there".to_owned(),
            );
            return;
        }
        self.add(
            "look for the error in the log of the process that raised it",
            "this is only its name".to_owned(),
        );
    }

    fn conflict(&mut self) {
        self.add(
            "drop max_split_size_mb and keep expandable_segments:True, or update to 2.3 or later",
            format!(
                "{} ({})",
                known::EXPANDABLE_SPLIT_ASSERT.says,
                known::EXPANDABLE_SPLIT_ASSERT.source
            ),
        );
    }

    fn not_memory(&mut self) {
        self.add(
            "set expandable_segments:False, or leave the option out",
            format!(
                "{} ({})",
                known::EXPANDABLE_PLATFORMS.says,
                known::EXPANDABLE_PLATFORMS.source
            ),
        );
    }

    fn other_framework(&mut self) {
        self.add(
            "check with nvidia-smi whether another process (or PyTorch in the same one) holds the card",
            "frameworks in one process do not share their caches".to_owned(),
        );
    }

    fn unknown(&mut self) {
        self.add(
            "give the whole text of the error, to the end of its last line",
            "its later figures tell the cause".to_owned(),
        );
        self.add(
            "record a snapshot (torch.cuda.memory._record_memory_history before, _dump_snapshot when it fails)",
            "a snapshot shows every block".to_owned(),
        );
    }

    /// Says so where PyTorch's own hint does not apply.
    fn hint_is_wrong(&mut self) {
        let Some(hint) = self.case.event.hint else { return };
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

/// A limit that keeps segments for requests of this size whole: a power of two below it, from 32 to 512 MiB.
fn split_limit(tried: u64) -> u64 {
    let mb = (tried / MIB).max(1);
    let below = 1_u64 << mb.ilog2();
    let strictly = if below == mb { below / 2 } else { below };
    strictly.clamp(32, 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_limit_lies_below_the_request() {
        assert_eq!(split_limit(GIB), 512);
        assert_eq!(split_limit(300 * MIB), 256);
        assert_eq!(split_limit(256 * MIB), 128);
        assert_eq!(split_limit(2 * MIB), 32);
    }
}

//! Advice for what happens outside PyTorch's caching allocator: libraries, host memory, other back
//! ends and frameworks, and texts that do not tell.

use vramwise_types::Human;

use super::super::cause::Cause;
use super::super::event::{Form, Kind};
use super::super::formats::neighbours;
use super::super::knowledge as known;
use super::Adviser;

impl Adviser<'_> {
    pub(super) fn outside(&mut self) {
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

    pub(super) fn own_outside(&mut self) {
        let outside = self.case.account.own_outside_pytorch().unwrap_or(0);
        self.add(
            "find what else of this process takes memory of the card: a second framework (JAX and TensorFlow take most of it at once), TensorRT, CuPy or RAPIDS with a pool of its own, NCCL's buffers, cudaMalloc in an extension",
            format!("{} lies outside PyTorch's allocator; {} ({})", Human(outside), known::DIRECT_USERS.says, known::DIRECT_USERS.source),
        );
        self.add(
            "give that library a limit, or let it use PyTorch's allocator (JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false; TensorFlow: TF_FORCE_GPU_ALLOW_GROWTH=true; CuPy and RMM: their hooks for PyTorch's allocator)",
            "no setting of PyTorch's allocator can take back what others hold".to_owned(),
        );
        self.add(
            "compare nvidia-smi with torch.cuda.memory_reserved() after each step of the start-up",
            "the step after which they part is the one that takes the memory".to_owned(),
        );
    }

    /// What helps against texts that are not PyTorch's, where that is known.
    fn neighbours(&mut self) {
        let family = neighbours::family(self.case.event.words);
        for (action, evidence) in family.map_or(&[][..], |family| family.advice) {
            self.add(*action, *evidence);
        }
    }

    pub(super) fn runtime_heap(&mut self) {
        self.neighbours();
        self.add(
            "look in the log of that program for what it was holding",
            "allocator settings for the GPU have no effect on it".to_owned(),
        );
    }

    pub(super) fn host(&mut self) {
        self.neighbours();
        match self.found.cause {
            Cause::PinnedMemory => {
                self.add("read the error behind 'Original Traceback'", "this line only forwards it".to_owned());
                self.add("set pin_memory=False once, to see whether it goes away", "then pinning is the cause".to_owned());
                return;
            }
            _ if self.case.event.form == Form::SharedMemory => {
                self.add(
                    "give the container more shared memory (docker run --shm-size or --ipc=host; an emptyDir of medium Memory at /dev/shm)",
                    "containers get 64 MiB unless told otherwise".to_owned(),
                );
                self.add("use fewer data loader workers, or none", "each hands its batches over through shared memory".to_owned());
                return;
            }
            // A scheduler's own advice says the same.
            Cause::ProcessKilled if !self.out.is_empty() => {}
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

    pub(super) fn mps(&mut self) {
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

    pub(super) fn engine(&mut self) {
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

    pub(super) fn masked(&mut self) {
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

    pub(super) fn conflict(&mut self) {
        self.add(
            "drop max_split_size_mb and keep expandable_segments:True, or update to 2.3 or later",
            format!(
                "{} ({})",
                known::EXPANDABLE_SPLIT_ASSERT.says,
                known::EXPANDABLE_SPLIT_ASSERT.source
            ),
        );
    }

    pub(super) fn not_memory(&mut self) {
        if self.case.event.form == Form::KernelResources {
            self.add(
                "use smaller block sizes, fewer warps or fewer pipeline stages for the kernel",
                "each block needs its part of what a multiprocessor has".to_owned(),
            );
            return;
        }
        self.add(
            "set expandable_segments:False, or leave the option out",
            format!(
                "{} ({})",
                known::EXPANDABLE_PLATFORMS.says,
                known::EXPANDABLE_PLATFORMS.source
            ),
        );
    }

    pub(super) fn other_framework(&mut self) {
        self.neighbours();
        self.add(
            "check with nvidia-smi whether another process (or PyTorch in the same one) holds the card",
            "frameworks in one process do not share their caches".to_owned(),
        );
    }

    pub(super) fn unknown(&mut self) {
        self.add(
            "give the whole text of the error, to the end of its last line",
            "its later figures tell the cause".to_owned(),
        );
        self.add(
            "record a snapshot (torch.cuda.memory._record_memory_history before, _dump_snapshot when it fails)",
            "a snapshot shows every block".to_owned(),
        );
    }
}

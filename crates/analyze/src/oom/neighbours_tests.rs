//! Memory that ran out elsewhere is named for what it is.

use super::*;

/// A log, whose memory its text is about, and what was asked for.
type Case = (&'static str, Kind, Form, Cause, Option<u64>);

const GIB: u64 = 1 << 30;

#[rustfmt::skip] // a table
const CASES: &[Case] = &[
    ("java.lang.OutOfMemoryError: GC overhead limit exceeded", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, None),
    ("24/05/01 12:00:00 ERROR Executor: Exception in task 0.0\njava.lang.OutOfMemoryError: Java heap space\n\tat a.B.c(B.java:3)", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, None),
    ("Exception in thread \"main\" java.lang.OutOfMemoryError: unable to create new native thread", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, None),
    ("# There is insufficient memory for the Java Runtime Environment to continue.", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, None),
    ("System.OutOfMemoryException: Insufficient memory to continue the execution of the program.", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, None),
    ("fatal error: runtime: out of memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("memory allocation of 68719476736 bytes failed", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(64 * GIB)),
    ("Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    x = [0] * 10**13\nMemoryError", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("[rank2]: MemoryError: no room", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.00 GiB for an array with shape (2,)", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(4 * GIB)),
    ("OSError: [Errno 12] Cannot allocate memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("bash: fork: Cannot allocate memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("OSError: [WinError 1455] The paging file is too small for this operation to complete", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("python invoked oom-killer: gfp_mask=0x1, order=0\n[1.2] Out of memory: Killed process 42 (python) total-vm:9kB, anon-rss:1kB", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("Out of memory: Kill process 42 (python) score 905 or sacrifice child", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0 cgroup.\nsrun: error: node01: task 0: Out Of Memory", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("State: OUT_OF_MEMORY (exit code 0)", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("=>> PBS: job killed: mem 67108864kb exceeded limit 62914560kb", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("The node was low on resource: memory. Container a was using 62Gi", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("Container trainer exited with code 137", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("command terminated with exit code 137", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("The command '/bin/sh -c python a.py' returned a non-zero code: 137", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("[launch.py:1] exits with return code = -9", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("[ERROR] failed (exitcode: -9) local_rank: 0 (pid: 42) of binary: python", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("step 100 loss 2.3\nKilled", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("./run.sh: line 3:  4242 Killed                  python train.py", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 16.00GiB (17179869184B) on device ordinal 0", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, Some(16 * GIB)),
    ("W bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB (rounded to 17179869184)requested by op", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, Some(16 * GIB)),
    ("ResourceExhaustedError: {{function_node __wrapped__AddV2}} failed to allocate memory [Op:AddV2]", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, None),
    ("ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, Some(GIB)),
    ("llama_kv_cache_init: failed to allocate buffer for kv cache", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, None),
    ("alloc_tensor_range: failed to allocate CPU buffer of size 1073741824\nerror loading model: unable to allocate CPU buffer", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(GIB)),
    ("Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, 22.0GB memory has been allocated", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, Some(2 * GIB)),
    ("Error out of memory at line 380 in file /src/csrc/pythonInterface.c", Kind::Library, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("MemoryError: std::bad_alloc: out_of_memory: CUDA error at: cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory", Kind::Library, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)", Kind::Library, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("Error: cannot allocate vector of size 4.0 Gb", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(4 * GIB)),
    ("cv2.error: OpenCV(4.8.0) error: (-4:Insufficient memory) Failed to allocate 1073741824 bytes in function 'OutOfMemoryError'", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(GIB)),
    ("virtual memory exhausted: Cannot allocate memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted (tried to allocate 1048576 bytes) in /x.php", Kind::Cpu, Form::RuntimeHeap, Cause::RuntimeHeap, Some(1 << 20)),
    ("Error: model requires more system memory (8.0 GiB) than is available (5.2 GiB)", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, Some(8 * GIB)),
    ("Your session crashed after using all available RAM.", Kind::Cpu, Form::Killed, Cause::ProcessKilled, None),
    ("cc1plus: out of memory allocating 65536 bytes after a total of 1234567 bytes", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("LLVM ERROR: out of memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("/usr/bin/ld: out of memory", Kind::Cpu, Form::HostAllocation, Cause::HostMemory, None),
    ("c++: fatal error: Killed signal terminated program cc1plus", Kind::Cpu, Form::Signal, Cause::ProcessKilled, None),
    ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", Kind::Cpu, Form::SharedMemory, Cause::HostMemory, None),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_3'", Kind::Cpu, Form::SharedMemory, Cause::HostMemory, None),
    ("RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.11G of 15.48G hbm.", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, None),
    ("ERROR: Out of GPU memory trying to allocate 1.000 GiB", Kind::OtherFramework, Form::Foreign, Cause::OtherFramework, Some(GIB)),
    ("[TensorRT-LLM][ERROR] Assertion failed: CUDA runtime error in ::cudaMalloc(ptr, n): out of memory", Kind::Library, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", Kind::Cudnn, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("RuntimeError: GET was unable to find an engine to execute this computation", Kind::Cudnn, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", Kind::Cudnn, Form::LibraryStatus, Cause::OutsidePytorch, None),
    ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (30832).", Kind::Engine, Form::EngineCache, Cause::EngineBudget, None),
    ("triton.runtime.errors.OutOfResources: out of resource: threads, Required: 2048, Hardware limit: 1024.", Kind::Library, Form::KernelResources, Cause::NotOutOfMemory, None),
];

#[test]
fn memory_that_ran_out_elsewhere_is_named_for_what_it_is() {
    let mut wrong = Vec::new();
    for (text, kind, form, cause, tried) in CASES {
        let found = explain_text(text);
        let told: Vec<_> = found
            .iter()
            .map(|e| (e.event.kind, e.event.form, e.cause, e.event.numbers.tried.map(|a| a.bytes)))
            .collect();
        if told != [(*kind, *form, *cause, *tried)] {
            wrong.push(format!("{text}\n  {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nobody_is_told_to_change_the_settings_of_a_gpu_for_it() {
    for (text, kind, ..) in CASES.iter().filter(|case| case.1 == Kind::Cpu) {
        for e in explain_text(text) {
            assert_eq!(e.event.kind, *kind);
            let about = e.why.join(" ");
            let elsewhere = e.event.form == Form::SharedMemory && about.contains("/dev/shm");
            assert!(elsewhere || about.contains("PyTorch's CUDA allocator"), "{text}: {about}");
            let sets = |a: &Advice| a.action.contains("ALLOC_CONF") || a.action.contains("batch");
            assert!(!e.advice.is_empty() && !e.advice.iter().any(sets), "{text}: {:?}", e.advice);
        }
    }
}

#[test]
fn a_compiler_without_memory_is_told_to_run_fewer_jobs() {
    for (text, ..) in CASES.iter().filter(|case| {
        ["cc1plus", "LLVM ERROR", "bin/ld"].iter().any(|words| case.0.contains(words))
    }) {
        let found = &explain_text(text)[0];
        assert!(found.advice[0].action.contains("MAX_JOBS"), "{text}: {:?}", found.advice);
        assert!(found.why[0].contains("compiler"), "{text}: {:?}", found.why);
    }
}

#[test]
fn talk_about_such_errors_is_none() {
    for text in [
        "logger.info('exit code 137')",
        "exit code 1370",
        "the MemoryError was handled",
        "print(\"Killed\")",
        "Killed 3 stale workers",
        "from torch.cuda import OutOfMemoryError",
        "except java.lang.Exception",
    ] {
        assert_eq!(find_events(text), [], "{text}");
    }
}

#[test]
fn a_killed_worker_does_not_hide_the_error_of_pytorch() {
    let text = "ray.exceptions.RayTaskError(OutOfMemoryError): worker\nexited with code 137";
    let kinds: Vec<_> = find_events(text).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [Kind::Cuda, Kind::Cpu]);
}

#[test]
fn words_that_are_not_known_are_shown_rather_than_passed_over() {
    let report = explain_log("all is well\nERROR:  out of memory\nDETAIL:  Failed on request\n");
    assert!(report.explanations.is_empty());
    let unknown = report.unknown.unwrap();
    assert_eq!((unknown.line, unknown.text.as_str()), (2, "ERROR:  out of memory"));
    assert_eq!(explain_log("all is well\n").unknown, None);
}

#[test]
fn more_than_the_card_has_is_no_spill_without_a_sign_of_one() {
    let text = "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 8.00 GiB of \
                which 0 bytes is free. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 1.00 \
                GiB is reserved by PyTorch but unallocated.";
    let bare = &explain_text(text)[0];
    assert_eq!(bare.cause, Cause::MoreThanCard);
    assert!(bare.confidence <= 0.5 && bare.why[0].contains("8.00 GiB more than the 8.00 GiB"));
    let why = bare.why.join("\n");
    assert!(
        ["task manager", "managed memory", "MIG slice", "two processes"]
            .iter()
            .all(|w| why.contains(w))
    );
    let wsl = format!("Linux 5.15.90.1-microsoft-standard-WSL2\n{text}");
    let told = &explain_text(&wsl)[0];
    assert_eq!(told.cause, Cause::SystemMemorySpill);
    assert!(told.confidence > 0.8 && told.why[1].contains("WSL2"));
}

"""_record_memory_history and everything that watches."""

from .registry import MIB, check, fresh, here, minor, raised

OWN = {"alloc", "free_requested", "free_completed", "snapshot", "oom"}


def record(torch, *arguments, **named):
    torch.cuda.memory._record_memory_history(*arguments, **named)


def trace(torch):
    return torch.cuda.memory._snapshot()["device_traces"][0]


def names_of_frames(entry):
    return [here(frame["filename"]) for frame in entry.get("frames", [])]


@check
def events_of_tensors_are_traced(torch):
    fresh(torch)
    record(torch)
    x = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="cuda")
    at = x.data_ptr()
    del x
    entries = trace(torch)
    record(torch, None)
    seen = [(e["action"], e["size"], e["addr"] == at) for e in entries if e["action"] in OWN]
    keys = sorted({key for entry in entries for key in entry} - {"frames"})
    stacks = [any(name == here(__file__) for name in names_of_frames(e)) for e in entries if e["action"] in OWN]
    times = [e["time_us"] for e in entries]
    return seen, keys, stacks, times == sorted(times), times[0] > 1e15, entries[0].get("compile_context")


@check
def segments_appear_in_the_trace(torch):
    fresh(torch)
    record(torch)
    x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    entries = trace(torch)
    record(torch, None)
    taken = [e for e in entries if e["action"] in ("segment_alloc", "segment_map")]
    inside = any(e["addr"] <= x.data_ptr() < e["addr"] + e["size"] for e in taken)
    first = [e["action"] for e in entries].index("alloc")
    return len(taken) > 0, inside, all(entries.index(e) < first for e in taken)


@check
def live_blocks_keep_their_stack(torch):
    record(torch, "state")
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    record(torch, None)
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    still = [b for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    del x
    y = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    later = [b for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["address"] == y.data_ptr()]
    stacks = [[here(__file__) in names_of_frames(b) for b in found] for found in (blocks, still, later)]
    return stacks, sorted(blocks[0]), [e["action"] for e in snapshot["device_traces"][0]]


@check
def the_trace_keeps_the_newest(torch):
    record(torch, max_entries=5)
    for _ in range(20):
        torch.empty(1000, device="cuda")
    entries = trace(torch)
    record(torch, None)
    return len(entries), [e["action"] for e in entries]


@check
def nothing_is_traced_when_it_is_off(torch):
    record(torch, None)
    torch.empty(1000, device="cuda")
    return len(trace(torch))


@check
def stacks_are_left_out(torch):
    record(torch, context=None)
    torch.empty(1000, device="cuda")
    entries = trace(torch)
    record(torch, None)
    return [bool(e.get("frames")) for e in entries if e["action"] in OWN]


@check
def actions_are_skipped(torch):
    if minor(torch) < 11:
        return None
    record(torch, skip_actions=["free_requested", "free_completed"])
    torch.empty(1000, device="cuda")
    entries = trace(torch)
    record(torch, None)
    wrong = raised(record, torch, skip_actions=["nonsense"])
    record(torch, None)
    return [e["action"] for e in entries if e["action"] in OWN], wrong


@check
def freed_blocks_wait_for_other_streams_in_the_trace(torch):
    fresh(torch)
    record(torch)
    side = torch.cuda.Stream()
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    at = x.data_ptr()
    x.record_stream(side)
    del x
    torch.cuda.synchronize()
    y = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    entries = trace(torch)
    record(torch, None)
    del y
    return [e["action"] for e in entries if e["addr"] == at and e["action"] in OWN][:3]


@check
def metadata_of_the_user_is_traced(torch):
    if minor(torch) < 10:
        return None
    record(torch)
    torch.cuda.memory._set_memory_metadata("of mine")
    torch.empty(1000, device="cuda")
    said = torch.cuda.memory._get_memory_metadata()
    torch.cuda.memory._set_memory_metadata("")
    torch.empty(1000, device="cuda")
    entries = trace(torch)
    record(torch, None)
    return said, [e.get("user_metadata") for e in entries if e["action"] == "alloc"]


@check
def annotations_are_kept(torch):
    record(torch, global_record_annotations=True)
    with torch.profiler.record_function("a step of mine"):
        torch.empty(1000, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    record(torch, None)
    return [(a.get("name"), a.get("stage")) for a in snapshot["external_annotations"]]


@check
def memory_of_an_error_is_traced(torch):
    record(torch)
    total = torch.cuda.mem_get_info()[1]
    kind = raised(torch.empty, 2 * total, dtype=torch.uint8, device="cuda")
    entries = trace(torch)
    record(torch, None)
    return kind, [(e["action"], e["size"] == 2 * total) for e in entries if e["action"] == "oom"]


@check
def the_profiler_sees_memory(torch):
    fresh(torch)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        del x
    amounts = [e.self_device_memory_usage for e in profile.events() if e.name == "aten::empty"]
    return amounts


@check
def observers_are_told_of_errors(torch):
    seen = []
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    attach(lambda device, asked, total, free: seen.append((device, asked, total, free)))
    total = torch.cuda.mem_get_info()[1]
    kind = raised(torch.empty, 2 * total, dtype=torch.uint8, device="cuda")
    # PyTorch's tells the segment that it wanted, which is the request rounded up; ours tells the request.
    return kind, [(s[0], 2 * total <= s[1] < 2 * total + 2 * MIB, s[2] == total, 0 < s[3] <= total) for s in seen[:1]]


@check
def accesses_are_told_to_the_sanitizer(torch):
    from torch.cuda import _gpu_trace

    seen = []
    _gpu_trace.register_callback_for_memory_allocation(lambda at: seen.append(("new", at)))
    _gpu_trace.register_callback_for_memory_deallocation(lambda at: seen.append(("old", at)))
    torch._C._activate_gpu_trace()
    x = torch.empty(1000, device="cuda")
    at = x.data_ptr()
    del x
    return [(what, where == at) for what, where in seen[:2]]

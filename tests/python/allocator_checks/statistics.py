"""Counters, limits, snapshots."""

import pickle
import tempfile

from .registry import MIB, check, current, fresh, raised

COUNTED = (
    "allocation.all.current",
    "allocation.all.peak",
    "allocation.all.allocated",
    "allocation.all.freed",
    "active.all.current",
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "allocated_bytes.all.allocated",
    "allocated_bytes.all.freed",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "requested_bytes.all.peak",
)


@check
def counters_have_the_same_names_and_values(torch):
    before = current(torch, *COUNTED)
    held = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 512, 513, 3 * MIB, 40 * MIB + 5)]
    during = current(torch, *COUNTED)
    del held[1], held[-1]
    after = current(torch, *COUNTED)
    stats = torch.cuda.memory_stats()
    difference = [{name: b[name] - a[name] for name in COUNTED} for a, b in ((before, during), (during, after))]
    return sorted(stats), difference, stats["max_split_size"]


@check
def memory_allocated_counts_in_units_of_512_bytes(torch):
    x = torch.empty(700, dtype=torch.uint8, device="cuda")
    used = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    del x
    return used, torch.cuda.memory_allocated()


@check
def reserved_covers_allocated_and_falls_with_empty_cache(torch):
    x = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    covers = torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    kept = torch.cuda.memory_reserved() > 0
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats()
    return covers, kept, torch.cuda.memory_reserved(), stats["segment.all.current"]


@check
def peaks_and_sums_are_reset(torch):
    x = torch.empty(9 * MIB, dtype=torch.uint8, device="cuda")
    del x
    high = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    low = torch.cuda.max_memory_allocated()
    sums = current(torch, "allocated_bytes.all.allocated", "allocation.all.freed")
    torch.cuda.reset_accumulated_memory_stats()
    none = current(torch, "allocated_bytes.all.allocated", "allocation.all.freed", "num_device_alloc", "num_alloc_retries")
    del y
    return high, low, sums, none


@check
def the_accelerator_interface_tells_the_same(torch):
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    a = torch.accelerator
    pairs = [
        (a.memory_allocated(), torch.cuda.memory_allocated()),
        (a.max_memory_allocated(), torch.cuda.max_memory_allocated()),
        (a.memory_reserved(), torch.cuda.memory_reserved()),
    ]
    a.reset_peak_memory_stats()
    del x
    a.empty_cache()
    return [left == right for left, right in pairs], a.memory_allocated(), a.memory_reserved()


@check
def a_summary_is_printed(torch):
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    lines = torch.cuda.memory_summary().splitlines()
    del x
    return len(lines), [line for line in lines if line.startswith("| Requested memory") or line.startswith("| Allocations")]


@check
def free_memory_of_the_card_is_told(torch):
    before = torch.cuda.mem_get_info()
    x = torch.empty(500 * MIB, dtype=torch.uint8, device="cuda")
    after = torch.cuda.mem_get_info()
    del x
    return before[1] == after[1], before[0] - after[0] >= 500 * MIB


@check
def segments_are_tiled_by_blocks_in_order(torch):
    held = [torch.empty(n * MIB, dtype=torch.uint8, device="cuda") for n in (1, 2, 30, 3)]
    del held[1]
    segments = torch.cuda.memory_snapshot()
    stats = torch.cuda.memory_stats()
    tiled = all(
        block["address"] == segment["address"] + sum(b["size"] for b in segment["blocks"][:n])
        for segment in segments
        for n, block in enumerate(segment["blocks"])
    )
    whole = all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in segments)
    states = {block["state"] for segment in segments for block in segment["blocks"]}
    sums = (
        sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"],
        sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"],
        sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"],
        sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"],
    )
    ordered = [s["address"] for s in segments] == sorted(s["address"] for s in segments)
    keys = sorted(segments[0]), sorted(segments[0]["blocks"][0])
    found = [any(b["address"] == t.data_ptr() for s in segments for b in s["blocks"]) for t in held]
    return tiled, whole, sorted(states), sums, ordered, keys, found


@check
def a_snapshot_is_written_to_a_file(torch):
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    with tempfile.NamedTemporaryFile() as file:
        torch.cuda.memory._dump_snapshot(file.name)
        written = pickle.load(open(file.name, "rb"))
    del x
    settings = {name for name in written.get("allocator_settings", {})}
    return sorted(written), len(written["device_traces"]), sorted(settings)


@check
def a_fraction_limits_what_is_held(torch):
    whole = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(0.25)
    quarter = torch.cuda.get_per_process_memory_fraction()
    total = torch.cuda.mem_get_info()[1]
    fits = raised(torch.empty, total // 5, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    refused = raised(torch.empty, total // 3, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    return whole, quarter, fits, refused, raised(torch.cuda.set_per_process_memory_fraction, 1.5)


@check
def memory_is_taken_without_tensors(torch):
    before = torch.cuda.memory_allocated()
    at = torch.cuda.caching_allocator_alloc(1000)
    during = torch.cuda.memory_allocated() - before
    torch.cuda.caching_allocator_delete(at)
    on_stream = torch.cuda.caching_allocator_alloc(1000, stream=torch.cuda.Stream())
    torch.cuda.caching_allocator_delete(on_stream)
    return during, torch.cuda.memory_allocated() - before, torch.cuda.caching_allocator_alloc(0)


@check
def caching_is_switched_off_and_on(torch):
    fresh(torch)
    torch.cuda.caching_allocator_enable(False)
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    uncached = torch.cuda.memory_allocated()
    del x
    torch.cuda.caching_allocator_enable(True)
    y = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    cached = torch.cuda.memory_allocated()
    del y
    return uncached, cached


@check
def empty_tensors_take_nothing(torch):
    x = torch.empty(0, device="cuda")
    y = torch.empty(3, 0, device="cuda").clone()
    return x.data_ptr(), y.data_ptr(), x.device.index, torch.cuda.memory_allocated()


@check
def storages_are_resized_and_cloned(torch):
    x = torch.empty(1000, device="cuda")
    x.untyped_storage().resize_(8 * MIB)
    grown = torch.cuda.memory_allocated()
    y = x.untyped_storage().clone()
    cloned = torch.cuda.memory_allocated()
    del x, y
    return grown, cloned, torch.cuda.memory_allocated()


@check
def both_devices_have_counters_of_their_own(torch):
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
    with torch.cuda.device(1):
        y = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    z = x.to("cuda:0")
    used = [torch.cuda.memory_allocated(n) for n in range(2)]
    devices = str(y.device), str(z.device)
    del x, y, z
    return used, devices, [torch.cuda.memory_allocated(n) for n in range(2)], raised(torch.cuda.memory_stats, 7)


@check
def the_largest_workspace_is_asked_for(torch):
    torch.backends.cudnn.benchmark = True
    try:
        layer = torch.nn.Conv2d(3, 8, 3, device="cuda")
        shape = tuple(layer(torch.randn(2, 3, 16, 16, device="cuda")).shape)
    finally:
        torch.backends.cudnn.benchmark = False
    return shape

"""What really happens with snippets that are passed on from page to page; prints what it saw as JSON.

Run by test_pitfalls.py on the emulated device, with max_split_size_mb:100 in PYTORCH_CUDA_ALLOC_CONF, nothing else that
counts in PYTORCH_ALLOC_CONF, and a variable with a number behind it.
"""

import gc
import json
import os
import sys
import warnings

import torch

MIB = 1 << 20
TOO_MUCH = 1 << 42
seen = {}


def allocate(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def settings():
    return torch.cuda.memory._snapshot()["allocator_settings"]


hold = allocate(1)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:300"
hold = allocate(1)
seen["split"] = settings()["max_split_size"] // MIB
seen["rounding"] = sorted(set(settings()["roundup_power2_divisions"].values()))

seen["keys"] = ["largest_free_block" in torch.cuda.memory_stats(), "size" in torch.cuda.memory_snapshot()[0],
                "state" in torch.cuda.memory_snapshot()[0], "state" in torch.cuda.memory_snapshot()[0]["blocks"][0]]

# Two of 8 MiB share a segment of 20 MiB: while one of them lives, nothing of it can be given back.
pairs = [(allocate(8), allocate(8)) for _ in range(5)]
halves = [second for _, second in pairs]
whole = [allocate(50) for _ in range(4)]
del pairs, whole
before = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
seen["given_back"] = (before - torch.cuda.memory_reserved()) // MIB
seen["stays"] = (torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) // MIB
del halves
# What empty_cache would do, the allocator does before it gives up.
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction(600 * MIB / torch.cuda.get_device_properties(0).total_memory)
cached = [allocate(50) for _ in range(8)]
del cached
try:
    big = allocate(500)
    seen["flushed_by_itself"] = torch.cuda.memory_stats()["num_alloc_retries"]
    del big
except torch.OutOfMemoryError:
    seen["flushed_by_itself"] = None
torch.cuda.set_per_process_memory_fraction(1.0)


def step():
    activations = allocate(64)
    torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
    return activations


def held():
    return torch.cuda.memory_allocated() // MIB


base = held()
kept = []
try:
    step()
except torch.OutOfMemoryError as error:
    torch.cuda.memory._record_memory_history()
    late = torch.cuda.memory._snapshot()
    seen["too_late"] = len(late["device_traces"][0])
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.empty_cache()
    seen["inside_the_handler"] = held() - base
    kept.append(error)
gc.collect()
seen["stored"] = held() - base
kept.clear()
gc.collect()
seen["outside"] = held() - base

states = []


def observe(*numbers):
    states.append(held() - base)
    if len(states) == 2:
        raise ValueError("of the observer")


def momentary():
    return torch.add(allocate(64), torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda"))


def caught():
    try:
        momentary()
    except Exception as error:
        states.append(held() - base)
        return type(error).__name__
    return None


torch._C._cuda_attach_out_of_memory_observer(observe)
first = caught()
seen["observer"] = states[:]
del states[1:]
seen["kinds"] = [first, caught()]

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    reserved = torch.cuda.memory_reserved()
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    seen["old_name"] = [[w.category.__name__ for w in warned], torch.cuda.memory_reserved() - reserved]
torch.cuda.empty_cache()
grown = [allocate(50) for _ in range(6)]
before = torch.cuda.memory_stats()["inactive_split_bytes.all.current"]
del grown[::2]
seen["split_bytes_of_expandable"] = torch.cuda.memory_stats()["inactive_split_bytes.all.current"] - before
json.dump(seen, sys.stdout)

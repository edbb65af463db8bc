"""Settings changed in mid-run, and what the allocator then does; prints what it saw as JSON.

Run by test_settings.py on the emulated device, with max_split_size_mb:200 in the environment.
"""

import json
import sys
import warnings

import torch

import vramwise
from vramwise.settings import allocator_settings

MIB = 1 << 20
seen = {}


# Before, options have fewer names, and PyTorch tells its settings together with its history.
NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 11)


def allocate(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def settings():
    return torch.cuda.memory._snapshot()["allocator_settings"]


def grew(mib):
    """MiB of new segments that a request makes."""
    before = torch.cuda.memory_reserved()
    block = allocate(mib)
    return (torch.cuda.memory_reserved() - before) / MIB, block


def error(function, *arguments):
    try:
        function(*arguments)
    except Exception as caught:
        return {"kind": type(caught).__name__, "text": str(caught), "position": getattr(caught, "position", None)}
    return None


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    # Before the first tensor everything can be set.
    early = "max_split_size_mb:200" + (",per_process_memory_fraction:0.9" if NEW else "")
    seen["before_cuda"] = vramwise.set_allocator_settings(early)
    hold = allocate(1)
    seen["fraction"] = torch.cuda.get_per_process_memory_fraction() if NEW else 0.9
    vramwise.set_allocator_settings("max_split_size_mb:200")
    seen["start"] = allocator_settings()

    # A block of 300 MiB is oversize under the environment's settings: a small request does not split it.
    del_me = allocate(300)
    del del_me
    seen["oversize_grew"], one = grew(100)
    seen["returned"] = vramwise.set_allocator_settings({"max_split_size_mb": 400})
    seen["in_force"] = settings()["max_split_size"]
    seen["splits_now"], two = grew(100)
    del one, two
    torch.cuda.empty_cache()

    seen["refused"] = error(vramwise.set_allocator_settings, "roundup_power2_divisions:4,no_such_option:1")
    seen["after_refused"] = [settings()["max_split_size"], settings()["PYTORCH_CUDA_ALLOC_CONF"]]
    seen["malformed"] = error(vramwise.set_allocator_settings, "max_split_size_mb=64")
    seen["backend"] = error(vramwise.set_allocator_settings, "backend:cudaMallocAsync")
    seen["same_backend"] = error(vramwise.set_allocator_settings, "backend:native,max_split_size_mb:400")
    seen["fraction_late"] = error(vramwise.set_allocator_settings, "per_process_memory_fraction:0.5")

    vramwise.set_allocator_settings("expandable_segments:True")
    seen["expandable_grew"], three = grew(90)
    vramwise.set_allocator_settings("")
    seen["stays"] = settings()["expandable_segments"]
    vramwise.set_allocator_settings("expandable_segments:False")
    del three
    seen["passed_over"], four = grew(90)
    del four
    torch.cuda.empty_cache()

    vramwise.set_allocator_settings("max_split_size_mb:200")
    schedule = vramwise.SettingsSchedule({"train": "roundup_power2_divisions:8", "eval": "expandable_segments:True"})
    phases = []
    with schedule:
        for name in ("train", "eval", "train"):
            with schedule.phase(name):
                now = settings()
                phases.append([name, now["max_split_size"] // MIB, now["expandable_segments"],
                               now["roundup_power2_divisions"]["1"]])
    seen["phases"] = phases
    seen["restored"] = [allocator_settings(), settings()["expandable_segments"]]

    steps = []
    with vramwise.SettingsSchedule({0: "", 2: "garbage_collection_threshold:0.8"}, release_cache=True) as schedule:
        for _ in range(4):
            cached = allocate(64)
            del cached
            steps.append([settings()["garbage_collection_threshold"], torch.cuda.memory_reserved() // MIB >= 64])
            schedule.step()
            steps[-1].append(torch.cuda.memory_reserved() // MIB >= 64)
    seen["steps"] = steps
seen["warnings"] = [str(w.message) for w in caught]
json.dump(seen, sys.stdout)

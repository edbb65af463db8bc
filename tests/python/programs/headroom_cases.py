"""Whether the largest block that headroom() names can be had, and one byte more cannot; prints what it saw as JSON.

Run by test_headroom.py on the emulated device.
"""

import gc
import json
import random
import sys

import torch
from random_tensors import MIB, allocate, fill

import vramwise

SETTINGS = ["", "max_split_size_mb:64", "roundup_power2_divisions:4", "large_segment_size_mb:64", "large_segment_size_mb:20",
            "expandable_segments:True", "expandable_segments:True,large_segment_size_mb:32",
            "expandable_segments:False,large_segment_size_mb:20"]


def succeeds(size):
    try:
        allocate(size)
    except torch.OutOfMemoryError:
        return False
    return True


def one(settings, seed, streams):
    rnd = random.Random(seed)
    torch.cuda.set_per_process_memory_fraction(rnd.choice([1.0, 0.5, 0.3]))
    live = fill(rnd, streams)
    wrong = []
    with torch.cuda.stream(rnd.choice(streams)):
        room = vramwise.headroom()
        sums = (room.reserved_bytes == torch.cuda.memory_reserved()
                and room.allocated_bytes == torch.cuda.memory_allocated()
                and room.cached_bytes == room.releasable_bytes + room.hole_bytes + room.unusable_bytes
                and min(room.releasable_bytes, room.hole_bytes, room.unusable_bytes) >= 0
                and room.largest_block_bytes <= room.available_bytes)
        if not sums:
            wrong.append("sums")
        # The one changes the cache for the other.
        if rnd.random() < 0.5 and succeeds(room.largest_block_bytes + 1):
            wrong.append("more can be had")
        room = vramwise.headroom()
        if room.largest_block_bytes and not succeeds(room.largest_block_bytes):
            wrong.append("it cannot be had")
        room = vramwise.headroom()
        if succeeds(room.largest_block_bytes + 1):
            wrong.append("more can be had afterwards")
    live.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return [f"{settings!r}, seed {seed}: {what}: {room}" for what in wrong]


allocate(1)
streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
wrong, cases = [], 0
for settings in SETTINGS:
    try:
        vramwise.set_allocator_settings(settings)
    except vramwise.VramwiseError:
        # An option that this release does not have.
        continue
    for seed in range(12):
        wrong += one(settings, seed, streams)
        cases += 1

torch.cuda.set_per_process_memory_fraction(1.0)
held = [allocate(30 * MIB) for _ in range(10)]
hole = held.pop(4)
del hole
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    private = allocate(40 * MIB)
del private
room = vramwise.headroom("cuda:0")
naive = room.total_bytes - torch.cuda.memory_reserved()
errors = []
for device in (5, "cpu", "cuda:3"):
    try:
        vramwise.headroom(device)
    except ValueError as error:
        errors.append(str(error))
json.dump({"cases": cases, "wrong": wrong, "private_unusable": room.unusable_bytes, "text": str(room),
           "other": room.other_bytes, "limit": room.limit_bytes, "naive_is_too_much": naive - room.available_bytes,
           "errors": errors}, sys.stdout)

"""What headroom() says under vramwise's own allocator, and whether so much can be had; prints what it saw as JSON.

Run by test_headroom.py on the emulated device.
"""

import gc
import json
import random
import sys

import torch
from random_tensors import MIB, allocate, fill

import vramwise

PAGE = 2 * MIB


def one(seed, streams):
    rnd = random.Random(seed)
    torch.cuda.set_per_process_memory_fraction(rnd.choice([1.0, 0.5, 0.3]))
    live = fill(rnd, streams)
    wrong = []
    with torch.cuda.stream(rnd.choice(streams)):
        room = vramwise.headroom()
        if room.exact or room.largest_block_bytes > room.available_bytes:
            wrong.append("sums")
        if room.largest_block_bytes < PAGE:
            wrong.append("the case is of no use")
        if not room.fits(room.largest_block_bytes):
            wrong.append("fits() says no")
        try:
            allocate(room.largest_block_bytes)
        except torch.OutOfMemoryError:
            wrong.append("it cannot be had")
    live.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return [f"seed {seed}: {what}: {room}" for what in wrong]


try:
    vramwise.install_allocator(required=True)
except vramwise.errors.NotAvailableError as error:
    json.dump({"skip": str(error)}, sys.stdout)
    sys.exit()
allocate(1)
streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
wrong = [line for seed in range(int(sys.argv[1])) for line in one(seed, streams)]
torch.cuda.set_per_process_memory_fraction(1.0)
held = [allocate(30 * MIB) for _ in range(20)][::2]
room = vramwise.headroom()
unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
json.dump({"wrong": wrong, "text": str(room), "largest": room.largest_block_bytes, "free": room.free_bytes,
           "unused": unused, "allocated": torch.cuda.memory_allocated()}, sys.stdout)

"""A recorded run whose settings change twice; prints nothing. Argument: the folder for the recording.

Run by test_changed_settings.py on the emulated device.
"""

import sys

import torch

import vramwise

MIB = 1 << 20
kept = []


def step(number):
    blocks = [torch.empty(mib * MIB, dtype=torch.uint8, device="cuda") for mib in (3, 7, 30, 45, 120, 12, 250)]
    kept.append(blocks[number])
    del blocks
    blocks = [torch.empty(mib * MIB, dtype=torch.uint8, device="cuda") for mib in (5, 28, 44, 100)]
    del blocks


with vramwise.record(sys.argv[1]) as recorder:
    for number in range(6):
        if number == 2:
            vramwise.set_allocator_settings("expandable_segments:True")
        if number == 4:
            # As other libraries do it, past this package.
            torch.cuda.memory._set_allocator_settings("expandable_segments:False,max_split_size_mb:32")
        step(number)
        recorder.step()
with vramwise.record(sys.argv[1]) as recorder:
    step(0)

"""One line at the end of a process: what the allocator held at its peak, and what of it was asked for."""

from __future__ import annotations

import atexit
import os
import sys
from types import ModuleType

VARIABLE = "VRAMWISE_ALLOCATOR_REPORT"


def register(torch: ModuleType) -> None:
    """Has the line written when this process ends, if the environment asks for it."""
    if os.environ.get(VARIABLE, "") in ("", "0"):
        return
    owner = os.getpid()

    def write() -> None:
        # Not in forked children, and not where CUDA was never started.
        if os.getpid() == owner and torch.cuda.is_initialized():
            for line in lines([torch.cuda.memory_stats(number) for number in range(torch.cuda.device_count())]):
                print(line, file=sys.stderr, flush=True)

    atexit.register(write)


def lines(stats: list[dict[str, int]]) -> list[str]:
    """A line for each device that was used, from its ``memory_stats()``."""
    told = []
    for number, device in enumerate(stats):
        held = device.get("reserved_bytes.all.peak", 0)
        requested = device.get("requested_bytes.all.peak", 0)
        if requested > 0:
            told.append(
                f"vramwise: cuda:{number}: peak held {_size(held)} ({held} bytes), "
                f"peak requested {_size(requested)} ({requested} bytes), ratio {held / requested:.3f}"
            )
    return told


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.2f} {unit}" if unit != "bytes" else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"

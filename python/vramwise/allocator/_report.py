"""At the end of a process: what the allocator held at its peak, what of it was asked for, what its misses cost."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import ModuleType

from ._engine import DriverCalls

VARIABLE = "VRAMWISE_ALLOCATOR_REPORT"


def register(torch: ModuleType, driver_calls: Callable[[int], list[DriverCalls]]) -> None:
    """Has the lines written when this process ends, if the environment asks for it."""
    if os.environ.get(VARIABLE, "") in ("", "0"):
        return
    owner = os.getpid()

    def write() -> None:
        # Not in forked children, and not where CUDA was never started.
        if os.getpid() == owner and torch.cuda.is_initialized():
            for number in range(torch.cuda.device_count()):
                for line in lines(number, torch.cuda.memory_stats(number), driver_calls(number)):
                    print(line, file=sys.stderr, flush=True)

    atexit.register(write)


def lines(number: int, stats: dict[str, int], calls: list[DriverCalls]) -> list[str]:
    """What is said of a device, from its ``memory_stats()`` and the calls to the driver; nothing if it was not used."""
    held = stats.get("reserved_bytes.all.peak", 0)
    requested = stats.get("requested_bytes.all.peak", 0)
    if requested == 0:
        return []
    peaks = f"peak held {_size(held)} ({held} bytes), peak requested {_size(requested)} ({requested} bytes)"
    told = [f"vramwise: cuda:{number}: {peaks}, ratio {held / requested:.3f}"]
    if calls:
        each = (f"{call.count} {call.name} {call.total_ns / 1e6:.1f} ms" for call in calls)
        longest = max(call.longest_ns for call in calls) / 1e6
        told.append(f"vramwise: cuda:{number}: calls to the driver: {', '.join(each)}; the longest {longest:.2f} ms")
    return told


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.2f} {unit}" if unit != "bytes" else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"

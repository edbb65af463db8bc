"""One look at the memory of a device: PyTorch's counters and the driver's."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from .._counters import counter
from .._sizes import show_size


@dataclass(frozen=True)
class MemoryReading:
    """What a device holds at one moment.

    Sizes are bytes; peaks and counters are since the start, or PyTorch's last reset of them.

    Attributes:
        time: seconds since 1970.
        step: the step that just ended, counted from 0 unless the program gave it.
        label: what a step is called, such as ``"epoch"``.
        device: number of the device.
        rank: rank of the process, ``None`` where it is alone.
        allocated_bytes, reserved_bytes, active_bytes: as ``torch.cuda.memory_stats()`` counts them now.
        inactive_split_bytes: free bytes between blocks in use, which cannot be given back. PyTorch counts none in
            expandable segments.
        peak_allocated_bytes, peak_reserved_bytes: their peaks.
        num_alloc_retries: times that the allocator gave its whole cache back because the device was full. If this
            grows, the program is near the edge, and slow.
        num_ooms: allocations that failed.
        free_bytes, total_bytes: the driver's figures for the device; ``None`` where they were not asked for.
    """

    time: float
    step: int
    label: str
    device: int
    rank: int | None
    allocated_bytes: int
    reserved_bytes: int
    active_bytes: int
    inactive_split_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    num_alloc_retries: int
    num_ooms: int
    free_bytes: int | None
    total_bytes: int | None

    @property
    def other_bytes(self) -> int | None:
        """Bytes in use on the device that this allocator does not hold: contexts, libraries, other processes."""
        if self.free_bytes is None or self.total_bytes is None:
            return None
        return max(0, self.total_bytes - self.free_bytes - self.reserved_bytes)

    def as_dict(self) -> dict[str, Any]:
        """All of it, with ``other_bytes``, as plain values."""
        return {**asdict(self), "other_bytes": self.other_bytes}

    def __str__(self) -> str:
        text = (
            f"{self.label} {self.step}, cuda:{self.device}: allocated {show_size(self.allocated_bytes)} "
            f"(peak {show_size(self.peak_allocated_bytes)}), reserved {show_size(self.reserved_bytes)} "
            f"(peak {show_size(self.peak_reserved_bytes)})"
        )
        if self.free_bytes is not None and self.other_bytes is not None:
            text += f", driver free {show_size(self.free_bytes)}, others {show_size(self.other_bytes)}"
        if self.num_alloc_retries:
            text += f", {self.num_alloc_retries} retries"
        if self.num_ooms:
            text += f", {self.num_ooms} out of memory"
        return text


def read_memory(
    torch: Any, device: int, *, step: int = 0, label: str = "step", rank: int | None = None, driver: bool = True
) -> MemoryReading:
    """Reads a device. Waits for no kernel; takes some tens of microseconds, and the driver's figures some more.

    Args:
        torch: the module.
        device: its number.
        step: the step that just ended.
        label: what a step is called.
        rank: of the process.
        driver: whether to ask the driver for free and total memory, which begins the device's context if nothing has.
    """
    # Flattened and sorted by PyTorch, the same takes several times as long.
    stats = torch.cuda.memory_stats_as_nested_dict(device)

    def now(name: str) -> int:
        return counter(stats, name)

    free, total = torch.cuda.mem_get_info(device) if driver else (None, None)
    return MemoryReading(
        time=time.time(),
        step=step,
        label=label,
        device=device,
        rank=rank,
        allocated_bytes=now("allocated_bytes.all.current"),
        reserved_bytes=now("reserved_bytes.all.current"),
        active_bytes=now("active_bytes.all.current"),
        inactive_split_bytes=now("inactive_split_bytes.all.current"),
        peak_allocated_bytes=now("allocated_bytes.all.peak"),
        peak_reserved_bytes=now("reserved_bytes.all.peak"),
        num_alloc_retries=now("num_alloc_retries"),
        num_ooms=now("num_ooms"),
        free_bytes=free,
        total_bytes=total,
    )

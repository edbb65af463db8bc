"""How much can still be allocated, which is neither "total - reserved" nor what ``nvidia-smi`` calls free.

Not here: whether a program fits (``vramwise rehearse``), or what a batch needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from . import _largest
from ._sizes import parse_size, show_size
from ._state import state
from ._torch_access import device_index, need_cuda
from .allocator import movable_bytes
from .errors import NotAvailableError
from .settings.current import in_force


@dataclass(frozen=True)
class Headroom:
    """What a device and PyTorch's cache can still give to the stream that asked. All sizes are bytes.

    Attributes:
        device: number of the device.
        stream: handle of the stream; 0 is the default stream.
        total_bytes: memory of the device, as the driver says.
        free_bytes: what the driver has free now: nobody's, neither this process's nor another's.
        limit_bytes: what ``torch.cuda.set_per_process_memory_fraction`` allows this process to reserve; ``None``
            where there is no limit below the device (or this PyTorch cannot tell).
        reserved_bytes: what the allocator holds.
        allocated_bytes: what of that is in use.
        pending_bytes: what was given back while another stream still used it (``record_stream``). It is not among the
            cached bytes. Segments that hold nothing else count as available, since the allocator waits for that
            stream before it gives up.
        cached_bytes: what of the reserved bytes is in free blocks.
        releasable_bytes: what of the cached bytes the driver can have back: segments that are wholly free (with
            expandable segments, granules). ``torch.cuda.empty_cache()`` would give it back, and the allocator does
            so by itself before it gives up.
        hole_bytes: cached bytes between blocks in use, which only requests on this stream that fit can have.
        unusable_bytes: cached bytes of no use to this stream: holes of other streams, pools of CUDA graphs and
            ``MemPool``, rests of up to 1 MiB between large blocks.
        available_bytes: what requests on this stream can still get in all, if their sizes suit: free within the
            limit, plus releasable, plus holes. An upper bound.
        largest_block_bytes: the largest single request that would succeed now.
        exact: whether that follows the rules of the allocator in use, which is so for PyTorch's own. vramwise's moves
            memory together: all whole pieces that it holds free and all that the driver has can make one block. What it
            can get besides, such as the free part of a piece that is in use, or memory that waits for other streams, is
            not counted: there is at least as much as said.
    """

    device: int
    stream: int
    total_bytes: int
    free_bytes: int
    limit_bytes: int | None
    reserved_bytes: int
    allocated_bytes: int
    pending_bytes: int
    cached_bytes: int
    releasable_bytes: int
    hole_bytes: int
    unusable_bytes: int
    available_bytes: int
    largest_block_bytes: int
    exact: bool = True

    @property
    def other_bytes(self) -> int:
        """Bytes in use on the device that this allocator does not hold: contexts, libraries, other processes."""
        return max(0, self.total_bytes - self.free_bytes - self.reserved_bytes)

    def fits(self, size: float | str) -> bool:
        """Whether one request would succeed now.

        Args:
            size: bytes, or a text such as ``"2GiB"``.

        >>> Headroom(0, 0, 100, 10, None, 60, 50, 0, 10, 0, 10, 0, 20, 10).fits(11)
        False
        """
        if isinstance(size, str):
            size = parse_size(size)
        elif not isinstance(size, Real):
            raise TypeError(f"a size is a number of bytes or a text such as '2GiB', not {size!r}")
        return bool(0 <= size <= self.largest_block_bytes)

    def __str__(self) -> str:
        least, bound = ("", "at most") if self.exact else ("at least ", "at least")
        limit = "" if self.limit_bytes is None else f", limit {show_size(self.limit_bytes)}"
        return (
            f"cuda:{self.device}: {least}{show_size(self.available_bytes)} available, {bound} "
            f"{show_size(self.largest_block_bytes)} in one block (driver free {show_size(self.free_bytes)}, "
            f"reserved {show_size(self.reserved_bytes)}, allocated {show_size(self.allocated_bytes)}{limit})"
        )


def headroom(device: Any = None) -> Headroom:
    """What can still be allocated on a device, on its current stream.

    It looks at the allocator's segments, which takes from 10 microseconds to some milliseconds, and waits for no
    kernel. Before PyTorch 2.11 it also copies the memory history where that is on, which can take seconds.

    What no figure can know: other processes may take what is free now, and the first use of a library (cuBLAS,
    cuDNN, NCCL) takes memory that is not PyTorch's. Inside a CUDA graph capture or ``torch.cuda.use_mem_pool``
    the allocator gives nothing back, and less is available than this says.

    Args:
        device: as PyTorch takes it: a number, ``"cuda:1"``, a ``torch.device``; ``None`` = the current device.

    Returns:
        The sizes, in bytes; :attr:`Headroom.available_bytes` and :attr:`Headroom.largest_block_bytes` first of all.

    Raises:
        NotAvailableError: torch is not installed, there is no CUDA device, or the allocator in use does not tell its
            segments (``cudaMallocAsync``, a pluggable one).
        ValueError: there is no such device.
    """
    torch = need_cuda("vramwise.headroom()")
    torch.cuda.init()
    index = device_index(torch, device)
    stream = int(torch.cuda.current_stream(index).cuda_stream)
    # First: it may begin the device's context, which takes memory.
    free, total = (int(size) for size in torch.cuda.mem_get_info(index))
    try:
        segments, settings = state(torch)
    except RuntimeError as error:
        raise NotAvailableError(
            f"vramwise.headroom() needs PyTorch's own allocator: the one in use does not tell its segments ({error})",
            missing="memory snapshot",
        ) from None
    current = str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or "")
    rules = _largest.rules_of(settings, in_force("large_segment_size_mb", current))
    backend = str(torch.cuda.get_allocator_backend())
    movable = movable_bytes(index) if backend == "vramwise" else None
    if movable is not None:
        rules = _largest.rules_of_pages(rules)
    sums = _largest.sums(segments, index, stream, rules)
    if movable is not None:
        # Some of what moves lies in no segment.
        sums = replace(sums, reserved=int(torch.cuda.memory_reserved(index)))
    limit = _limit(torch, index, total)
    return measured(index, stream, free, total, limit, sums, rules, exact=backend == "native", movable=movable)


def measured(
    device: int,
    stream: int,
    free: int,
    total: int,
    limit: int | None,
    sums: _largest.Sums,
    rules: _largest.Rules,
    *,
    exact: bool = True,
    movable: int | None = None,
) -> Headroom:
    """Puts together what the driver and the allocator say; sizes in bytes.

    Args:
        device: number of the device.
        stream: handle of the stream that asks.
        free: what the driver has free.
        total: what the device has.
        limit: of the process; ``None`` without one.
        sums: of the segments.
        rules: the settings.
        exact: whether the allocator is PyTorch's own.
        movable: free bytes that serve any request, where the allocator is vramwise's.
    """
    # What an allocator that is not known gives back before it gives up is not known either.
    back = sums.releasable + sums.releasable_pending if exact else movable or 0
    driver = free + back
    room = None if limit is None else max(0, limit - (sums.reserved - back))
    fresh = _largest.pages(driver, room) if movable is not None else _largest.fresh(driver, sums, rules, room)
    block = max(sums.largest_hole, fresh)
    return Headroom(
        device=device,
        stream=stream,
        total_bytes=total,
        free_bytes=free,
        limit_bytes=limit,
        reserved_bytes=sums.reserved,
        allocated_bytes=sums.allocated,
        pending_bytes=sums.pending,
        cached_bytes=sums.cached,
        releasable_bytes=sums.releasable if movable is None else movable,
        hole_bytes=sums.holes,
        unusable_bytes=sums.unusable if movable is None else max(0, sums.cached - movable - sums.holes),
        available_bytes=(driver if room is None else min(driver, room)) + sums.holes,
        largest_block_bytes=_largest.largest_request(block, rules),
        exact=exact,
    )


def _limit(torch: Any, device: int, total: int) -> int | None:
    ask = getattr(torch.cuda.memory, "get_per_process_memory_fraction", None)
    if ask is None:
        return None
    try:
        fraction = float(ask(device))
    except RuntimeError:
        return None
    return int(fraction * total) if fraction < 1.0 else None

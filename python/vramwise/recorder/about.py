"""What is known beside a snapshot: counters, versions, settings, cards, why it was written.

Each fact is asked for on its own, and one that cannot be had is ``null``: after a failure the device may not answer.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import changes
from .names import ranks
from .options import Options

# Not .json: a directory of snapshots is given to vramwise as a whole, and .json may be a snapshot.
ENDING = ".info"
_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
)
_DRIVER_FILE = "/proc/driver/nvidia/version"


def describe(
    torch: Any,
    snapshot: dict[str, Any],
    *,
    file: str,
    reason: str,
    step: int | None,
    options: Options,
    steps_with_stacks: list[int] | None,
    notes: list[str],
    failed: dict[str, int] | None = None,
) -> str:
    """The text of the file beside a snapshot: JSON, sizes in bytes, times in seconds since 1970.

    Args:
        torch: the module.
        snapshot: what is in the file.
        file: its name.
        reason: why it was written.
        step: how many steps had ended, or the one that just did; ``None`` without steps.
        options: what the recorder was asked for.
        steps_with_stacks: the last steps whose allocations have stacks, ``None`` where that is the same for all.
        notes: what is not as asked.
        failed: what the allocator said of the failed request, where there was one: ``device``,
            ``requested_bytes``, ``total_bytes``, ``free_bytes``.
    """
    entries = [len(trace) for trace in snapshot.get("device_traces", [])]
    about = {
        "schema": 1,
        "snapshot": file,
        "reason": reason,
        "time": round(time.time(), 3),
        "step": step,
        **ranks(torch),
        "pid": os.getpid(),
        "host": _try(socket.gethostname),
        "out_of_memory": failed,
        "recording": {
            "max_entries": options.max_entries,
            "context": options.context,
            "stacks": options.stacks,
            "steps_with_stacks": steps_with_stacks,
            "entries": entries,
            "oldest_overwritten": [count >= options.max_entries for count in entries],
            "notes": notes,
        },
        "settings": {
            "changes": changes.described(snapshot),
            "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
            "allocator": snapshot.get("allocator_settings"),
            "backend": _try(lambda: str(torch.cuda.get_allocator_backend())),
        },
        "versions": _versions(torch),
        "devices": [d for d in (_device(torch, n, failed) for n in range(_count(torch))) if d is not None],
    }
    return json.dumps(about, indent=1, default=str) + "\n"


def note(snapshot: dict[str, Any], steps_with_stacks: list[int] | None) -> None:
    """Says in a snapshot, before it is written, what PyTorch does not: vramwise's commands look there.

    Which steps have stacks, and which settings were changed in mid-run. PyTorch's own viewer passes over keys that it
    does not know.
    """
    told: dict[str, Any] = {}
    if steps_with_stacks is not None:
        told["steps_with_stacks"] = steps_with_stacks
    settings = changes.note(snapshot)
    if settings is not None:
        told["settings"] = settings
    if told:
        snapshot["vramwise_recorder"] = told


def beside(path: Path) -> Path:
    """Where the description of a snapshot lies."""
    return path.with_name(path.name.removesuffix(".pickle") + ENDING)


def _versions(torch: Any) -> dict[str, Any]:
    from .. import __version__

    version = getattr(torch, "version", None)
    return {
        "vramwise": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        "torch": str(getattr(torch, "__version__", "")) or None,
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "cuda_of_driver": _try(lambda: int(torch._C._cuda_getDriverVersion())),
        "driver": _try(_driver),
        "cudnn": _try(lambda: torch.backends.cudnn.version()),
    }


def _driver() -> str | None:
    with open(_DRIVER_FILE, encoding="utf-8", errors="replace") as file:
        words = file.readline().split()
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def _device(torch: Any, index: int, failed: dict[str, int] | None) -> dict[str, Any] | None:
    """A device that this process uses. Others are left alone: to ask for their memory would start them."""
    stats = _try(lambda: dict(torch.cuda.memory_stats(index))) or {}
    is_current = _try(lambda: int(torch.cuda.current_device())) == index
    if not is_current and not stats.get("reserved_bytes.all.peak"):
        return None
    properties = _try(lambda: torch.cuda.get_device_properties(index))
    free, total = None, getattr(properties, "total_memory", None)
    if failed is not None and failed["device"] == index:
        free, total = failed["free_bytes"], failed["total_bytes"]
    elif not _capturing(torch):
        free, total = _try(lambda: torch.cuda.mem_get_info(index)) or (None, total)
    return {
        "index": index,
        "name": getattr(properties, "name", None),
        "compute_capability": [getattr(properties, "major", None), getattr(properties, "minor", None)],
        "uuid": _try(lambda: str(properties.uuid)),
        "total_bytes": total,
        "free_bytes": free,
        "memory_fraction": _try(lambda: float(torch._C._cuda_getMemoryFraction(index))),
        "memory_stats": stats,
    }


def _capturing(torch: Any) -> bool:
    """Whether a CUDA graph is being captured, during which the driver is not to be asked."""
    ask = getattr(torch.cuda, "is_current_stream_capturing", None)
    return bool(_try(ask)) if ask is not None else False


def _count(torch: Any) -> int:
    return _try(lambda: int(torch.cuda.device_count())) or 0


def _try(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - what cannot be had is null
        return None

"""The allocator's segments and settings as they are now, without the history where the release allows that."""

from __future__ import annotations

import inspect
from typing import Any

# What vramwise's allocator adds to the settings that PyTorch was told.
_OURS = "backend:vramwise"


def state(torch: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All segments of this process, and ``allocator_settings`` (empty where the release does not give them).

    Raises:
        RuntimeError: the allocator in use cannot tell (another one than PyTorch's own).
    """
    ask = torch._C._cuda_memorySnapshot
    if without_history(torch):
        answer = ask((0, 0, False))
    else:
        try:
            answer = ask(None)
        except TypeError:
            # Up to 2.6 it takes nothing.
            answer = ask()
    settings = dict(answer.get("allocator_settings") or {})
    conf = settings.get("PYTORCH_CUDA_ALLOC_CONF")
    if isinstance(conf, str):
        settings["PYTORCH_CUDA_ALLOC_CONF"] = ",".join(option for option in conf.split(",") if option != _OURS)
    return list(answer.get("segments", [])), settings


def without_history(torch: Any) -> bool:
    """Whether this release can leave the history out (2.11 and later), by the function that has it as an argument."""
    try:
        return "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters
    except (AttributeError, TypeError, ValueError):
        return False

"""The allocator's segments and settings as they are now, without the history where the release allows that."""

from __future__ import annotations

from typing import Any


def state(torch: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All segments of this process, and ``allocator_settings`` (empty where the release does not give them).

    Raises:
        RuntimeError: the allocator in use cannot tell (another one than PyTorch's own).
    """
    ask = torch._C._cuda_memorySnapshot
    try:
        # 2.11 and later can leave the history out, which may be large.
        answer = ask(None, False)
    except TypeError:
        answer = _older(ask)
    return list(answer.get("segments", [])), dict(answer.get("allocator_settings") or {})


def _older(ask: Any) -> dict[str, Any]:
    try:
        answer = ask(None)
    except TypeError:
        answer = ask()
    return dict(answer)

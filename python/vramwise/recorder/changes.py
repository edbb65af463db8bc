"""Changes of the allocator's settings while it is recorded: when, and to what.

A snapshot names the settings at its end alone, and a history that was made under several is not replayed under one.
Each change is marked in the history, whose clock is not Python's, by an annotation ``vramwise.settings#N``. What
follows from it is the replay's affair (``vramwise replay``, ``vramwise tune``).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._state import state, without_history

#: How the marks begin; a number follows.
MARK = "vramwise.settings"
#: PyTorch's functions that set them, by all names that releases have had.
FUNCTIONS = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
# As many as the reader takes; of a program that changes them all the time, the last ones.
_MOST = 1000


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        mark: the annotation that stands for it in the history.
        time_us: when, in microseconds since 1970, where the history has no such annotation.
        before: what was in force until then: all values where PyTorch tells them, else the string.
        conf: the string that was set.
    """

    mark: str
    time_us: int
    before: dict[str, Any] | str
    conf: str


# No lock: a handler of a signal may read while its thread adds one, and each access is one step of the interpreter.
_changes: deque[Change] = deque(maxlen=_MOST)
# Counted through the process: marks of an earlier recording may still be there.
_numbers = itertools.count()
_within = threading.local()


def forget() -> None:
    """A history begins or ends: what was set before does not matter to the next one."""
    _changes.clear()


def through(torch: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function ``real``, and each call that it accepts becomes a change."""

    def call(*args: Any, **kwargs: Any) -> Any:
        text = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(text, str) or getattr(_within, "call", False):
            # One of its names may call the other.
            return real(*args, **kwargs)
        before = _in_force(torch)
        mark = f"{MARK}#{next(_numbers)}"
        _within.call = True
        try:
            # Marked on both sides: nothing that this thread asks for is on the wrong one.
            with torch.autograd.profiler.record_function(mark):
                now = time.time_ns() // 1000
                answer = real(*args, **kwargs)
        finally:
            _within.call = False
        _changes.append(Change(mark, now, before, text))
        return answer

    return call


def note(snapshot: dict[str, Any]) -> dict[str, Any] | None:
    """The changes in the form in which a snapshot has them; ``None`` without any.

    Args:
        snapshot: the one that they are about.
    """
    changes = _changes.copy()
    if not changes:
        return None
    marks: dict[str, int] = {}
    for mark in snapshot.get("external_annotations", []):
        if mark.get("stage") == "START" and str(mark.get("name", "")).startswith(MARK):
            marks.setdefault(mark["name"], mark["time_us"])
    told = [{"time_us": marks.get(change.mark, change.time_us), "conf": change.conf} for change in changes]
    return {"before": changes[0].before, "changes": told}


def described(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """The changes in a snapshot's note for people: when, before which event of each device's history, and to what."""
    told = (snapshot.get("vramwise_recorder") or {}).get("settings")
    if told is None:
        return []
    times = [[event.get("time_us", 0) for event in trace] for trace in snapshot.get("device_traces", [])]
    return [
        {
            "time": change["time_us"] / 1e6,
            "events": [bisect_left(device, change["time_us"]) for device in times],
            "settings": change["conf"],
        }
        for change in told["changes"]
    ]


def _in_force(torch: Any) -> dict[str, Any] | str:
    """All values where they can be had without PyTorch's copying its history, else the string."""
    if without_history(torch) and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            return state(torch)[1]
    from ..settings.current import allocator_settings

    return allocator_settings(torch)

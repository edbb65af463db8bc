"""PyTorch's memory history: switched on by the first recorder, off by the last one.

The history belongs to the process, not to a recorder. Where the program has switched it on before, it stays as
it is, and nobody here switches it off.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any

from .options import Options

_lock = threading.Lock()
_users = 0
_ours: Options | None = None


def begin(torch: Any, options: Options) -> str | None:
    """Switches the history on, or joins the one that is on.

    Returns:
        What is not as the options say because somebody else began the history, or ``None``.

    Raises:
        RuntimeError: PyTorch cannot record with the allocator that is in use.
    """
    global _users, _ours
    with _lock:
        note = None
        if _users == 0:
            _ours = None
            if is_on(torch):
                note = "the history was already on, begun by the program: its own max_entries and stacks stay"
            else:
                _switch_on(torch, options)
                _ours = options
        elif _ours is not None and _shape(_ours) != _shape(options):
            note = (
                f"another recorder began the history: its max_entries={_ours.max_entries}, context={_ours.context!r} "
                f"and stacks={_ours.stacks!r} stay"
            )
        _users += 1
        return note


def end(torch: Any) -> None:
    """Leaves the history; switches it off if it was switched on here and nobody uses it any more."""
    global _users, _ours
    with _lock:
        _users = max(0, _users - 1)
        if _users == 0 and _ours is not None:
            _ours = None
            torch.cuda.memory._record_memory_history(None)


def forget() -> None:
    """In a forked child: the parent's history is not ours to end."""
    global _users, _ours, _lock
    _users, _ours, _lock = 0, None, threading.Lock()


def is_on(torch: Any) -> bool:
    """Whether PyTorch records now; ``False`` where this release cannot tell."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    try:
        return bool(ask()) if ask is not None else False
    except RuntimeError:
        # Allocators other than PyTorch's own may not answer.
        return False


def _shape(options: Options) -> tuple[int, str | None, str]:
    return options.max_entries, options.context, options.stacks


def _switch_on(torch: Any, options: Options) -> None:
    switch = torch.cuda.memory._record_memory_history
    wanted = {
        "context": options.context,
        "stacks": options.stacks,
        "max_entries": options.max_entries,
        # Steps may be marked from another thread than the one that begins.
        "global_record_annotations": True,
    }
    try:
        known = set(inspect.signature(switch).parameters)
    except (TypeError, ValueError):
        known = {"context", "stacks", "max_entries"}
    switch("all", **{name: value for name, value in wanted.items() if name in known})

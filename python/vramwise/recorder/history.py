"""PyTorch's memory history: switched on by the first recorder, off by the last one.

The history belongs to the process, not to a recorder. Where the program has switched it on before, or does so later,
it stays as the program wants it, and nobody here switches it off.
"""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from .._say import warn
from .._torch_access import torch_version
from . import changes, watch
from .options import Options
from .sampling import Sampling

# Seen of 2.9 that it forgets them, of 2.11 and 2.15 that they do not.
_KEEPS_ANNOTATIONS = (2, 11)


_TAKEN = (
    "the program has called _record_memory_history itself: from there on its own max_entries and stacks stay, and "
    "nobody else ends the history"
)


@dataclass
class _Shared:
    """What all recorders of the process know together."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    # The options that the history was switched on with, where that was done here.
    ours: Options | None = None
    stacks_now: bool = True
    # Why it is not ours, where it is not.
    theirs: str | None = None
    # Of the recorder that began it, where not all steps have stacks.
    sampling: Sampling | None = None


_shared = _Shared()


def begin(torch: Any, options: Options) -> tuple[str | None, bool]:
    """Switches the history on, or joins the one that is on.

    Returns:
        What is not as the options say because somebody else began the history, or ``None``; and whether it was
        switched on here, so that this recorder says which steps have stacks.

    Raises:
        RuntimeError: PyTorch cannot record with the allocator that is in use.
    """
    with _shared.lock:
        note, began = None, False
        if _shared.users == 0:
            _shared.ours = _shared.theirs = _shared.sampling = None
            changes.forget()
            watch.settings(torch)
        if _shared.users == 0 and is_on(torch):
            who = "the rehearsal" if _is_rehearsed() else "the program"
            note = _shared.theirs = f"the history was already on, begun by {who}: its own max_entries and stacks stay"
        elif _shared.users == 0:
            _switch_on(torch, options)
            _shared.ours = options
            _shared.stacks_now = began = True
            watch.begin(torch, _taken_over)
        elif _shared.ours is None:
            note = _shared.theirs
        elif _shape(_shared.ours) != _shape(options):
            ours = _shared.ours
            note = (
                f"another recorder began the history: its max_entries={ours.max_entries}, context={ours.context!r} "
                f"and stacks={ours.stacks!r} stay"
            )
        _shared.users += 1
        return note, began


def end(torch: Any) -> None:
    """Leaves the history; switches it off if it was switched on here and nobody uses it any more."""
    with _shared.lock:
        _shared.users = max(0, _shared.users - 1)
        if _shared.users == 0:
            ours, _shared.ours = _shared.ours, None
            watch.end(torch)
            changes.forget()
            if ours is not None:
                torch.cuda.memory._record_memory_history(None)


def users() -> int:
    """How many recorders use it."""
    return _shared.users


def forget() -> None:
    """In a forked child: the parent's history is not ours to end, and its lock may be held by nobody who is here."""
    _shared.lock, _shared.users, _shared.ours, _shared.sampling = threading.Lock(), 0, None, None
    changes.forget()


def stacks(torch: Any, wanted: bool) -> None:
    """From now on, allocations get stacks or do not. What was recorded stays; takes some microseconds."""
    with _shared.lock:
        if _shared.ours is None or wanted == _shared.stacks_now or not is_on(torch):
            return
        _switch_on(torch, _shared.ours if wanted else replace(_shared.ours, context=None))
        _shared.stacks_now = wanted


def sample(sampling: Sampling | None) -> None:
    """Which steps have stacks in the history that has just begun."""
    _shared.sampling = sampling


def steps_with_stacks() -> list[int] | None:
    """The last steps with stacks, ``None`` where that is the same for all."""
    return list(_shared.sampling.last_steps) if _shared.sampling is not None else None


def taken_over() -> str | None:
    """That the program has begun the history anew, in a sentence; ``None`` where it has not."""
    return _TAKEN if _shared.theirs is _TAKEN else None


def _taken_over() -> None:
    """The program has called PyTorch's function itself. No lock: that may be a handler of a signal."""
    if _shared.theirs is not _TAKEN and _shared.ours is not None:
        _shared.ours, _shared.theirs = None, _TAKEN
        warn(f"{_TAKEN}; the recorder still writes its files")


def why_not_some_stacks(torch: Any) -> str | None:
    """Why stacks cannot be switched on and off within a recording of this release; ``None`` where they can."""
    version = torch_version(torch)
    if version >= _KEEPS_ANNOTATIONS:
        return None
    return (
        f"all steps have stacks: PyTorch {version[0]}.{version[1]} would forget its annotations, and with them the "
        "steps, where stacks are switched off in between (2.11 does not)"
    )


def stacks_now() -> bool:
    """Whether allocations get stacks at this moment, as far as that was decided here."""
    return _shared.users > 0 and _shared.stacks_now


def can_tell(torch: Any) -> bool:
    """Whether this release can be asked whether it records."""
    return hasattr(torch._C, "_cuda_isHistoryEnabled")


def is_on(torch: Any) -> bool:
    """Whether PyTorch records now; ``False`` where this release cannot tell."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    begun = getattr(torch.cuda, "is_initialized", None)
    if begun is not None and not begun():
        # There is no allocator yet, and to ask it ends the process.
        return False
    try:
        return bool(ask()) if ask is not None else False
    except RuntimeError:
        # Allocators other than PyTorch's own may not answer.
        return False


def _is_rehearsed() -> bool:
    """Whether ``vramwise rehearse`` records this process, which it does by a module of its own."""
    return "vramwise_record" in sys.modules


def _shape(options: Options) -> tuple[int, str | None, str]:
    return options.max_entries, options.context, options.stacks


def _switch_on(torch: Any, options: Options) -> None:
    switch = torch.cuda.memory._record_memory_history
    wanted = {
        "context": options.context,
        "stacks": "python" if options.stacks == "auto" else options.stacks,
        "max_entries": options.max_entries,
        # Steps may be marked from another thread than the one that begins.
        "global_record_annotations": True,
    }
    try:
        known = set(inspect.signature(switch).parameters)
    except (TypeError, ValueError):
        known = {"context", "stacks", "max_entries"}
    with watch.quiet():
        switch("all", **{name: value for name, value in wanted.items() if name in known})

"""Hears the program call PyTorch's ``_record_memory_history``, or set the allocator, while a recorder has the history.

Whichever name the program knows those functions by, they end in a few of ``torch._C``, and these are stood in for. The
call itself goes through as it came. What follows from it is decided in ``history`` and ``changes``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import changes

_NAMES = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
_own = threading.local()
_standing: dict[str, tuple[Any, Any]] = {}


def begin(torch: Any, heard: Callable[[], None]) -> None:
    """From now on, ``heard`` is called after each call of the program's that switches the history on."""
    for name in _NAMES:
        _put(torch, name, lambda real: _stand_in(real, heard))


def settings(torch: Any) -> None:
    """From now on, changes of the allocator's settings are noted."""
    for name in changes.FUNCTIONS:
        _put(torch, name, lambda real: changes.through(torch, real))


def _put(torch: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    real = getattr(torch._C, name, None)
    if real is None or name in _standing:
        return
    stand_in = functools.wraps(real)(make(real))
    _standing[name] = real, stand_in
    setattr(torch._C, name, stand_in)


def end(torch: Any) -> None:
    """Puts back what was there. Where somebody else stands in by now, that stays, and calls go through as before."""
    for name, (real, stand_in) in _standing.items():
        if getattr(torch._C, name, None) is stand_in:
            setattr(torch._C, name, real)
    _standing.clear()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Calls of this thread are not the program's."""
    before, _own.calls = getattr(_own, "calls", False), True
    try:
        yield
    finally:
        _own.calls = before


def _stand_in(real: Callable[..., Any], heard: Callable[[], None]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        answer = real(*args, **kwargs)
        enabled = args[0] if args else kwargs.get("enabled")
        if enabled and not getattr(_own, "calls", False):
            heard()
        return answer

    return call

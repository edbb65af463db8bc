"""What makes recorders write: an allocation that fails, a signal, the end of the process.

Each is attached once for the process and asks the recorders that are at work; PyTorch has no way to take an
observer away again. A forked child has none at work: it cannot use the device, and the files are the parent's.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import history
from .callers import frames_here

if TYPE_CHECKING:
    from .recorder import Recorder

_at_work: list[Recorder] = []
_observed: set[int] = set()
_before: dict[int, Any] = {}
_attached: list[bool] = []


def attach(torch: Any, recorder: Recorder) -> str | None:
    """Lets a recorder hear of what happens; what it will not hear of and why, or ``None``.

    Raises:
        RuntimeError: a signal was asked for outside the main thread.
    """
    number = recorder.options.on_signal
    if number is not None:
        _handle(number)
    _at_work.append(recorder)
    if not _attached:
        _attached.append(True)
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_in_child)
    return _observe(torch) if recorder.options.on_oom else None


def detach(recorder: Recorder) -> None:
    """The reverse; a signal that no recorder waits for any more gets its former handler back."""
    if recorder in _at_work:
        _at_work.remove(recorder)
    number = recorder.options.on_signal
    if number is not None and all(other.options.on_signal != number for other in _at_work):
        _unhandle(number)


def _observe(torch: Any) -> str | None:
    observe = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if observe is None:
        return "this PyTorch has no observer for failed allocations: files are written where the error leaves the block"
    if id(torch) not in _observed:
        try:
            observe(_out_of_memory)
        except RuntimeError as error:
            return f"PyTorch takes no observer for failed allocations ({error})"
        _observed.add(id(torch))
    return None


def _out_of_memory(device: int, requested: int, total: int, free: int) -> None:
    """Called by the allocator before it raises, on the thread that asked, without its lock.

    Whatever this raised would take the place of the error, so it raises nothing but KeyboardInterrupt.
    """
    failed = {"device": device, "requested_bytes": requested, "total_bytes": total, "free_bytes": free}
    frames = frames_here(1)
    folders = set()
    for recorder in at_work():
        if recorder.recording and recorder.options.on_oom:
            folder = recorder.options.folder.absolute()
            recorder._on_out_of_memory(failed, frames, write=folder not in folders)
            folders.add(folder)


def _at_exit() -> None:
    for recorder in at_work():
        recorder.stop()


def _in_child() -> None:
    _at_work.clear()
    _before.clear()
    history.forget()
    from .recorder import after_fork

    after_fork()


def at_work() -> list[Recorder]:
    """The recorders that record now, innermost first."""
    return list(reversed(_at_work))


def _handle(number: int) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("on_signal works in the main thread only (as Python's signal handlers do); begin there")
    if signal.getsignal(number) is not _on_signal:
        _before[number] = signal.signal(number, _on_signal)


def _unhandle(number: int) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    # Somebody else may have put a handler of their own in our place since.
    if signal.getsignal(number) is _on_signal and number in _before:
        former = _before.pop(number)
        signal.signal(number, signal.SIG_DFL if former is None else former)


def _on_signal(number: int, frame: FrameType | None) -> None:
    for recorder in at_work():
        if recorder.options.on_signal == number:
            recorder.dump("signal")
    former = _before.get(number)
    if callable(former):
        then: Callable[[int, FrameType | None], Any] = former
        then(number, frame)
    elif former == signal.SIG_DFL and number not in _FOR_USERS:
        # What would have ended the process still does, and soon: who sends this seldom waits long.
        for recorder in at_work():
            recorder._stop(write=False)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# Signals without a meaning of their own: a program without a handler is not to die of them.
_FOR_USERS = {int(getattr(signal, name)) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)}

"""What a recorder is asked to do, checked when it is made and not when memory has run out."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._numbers import whole_number
from .._sizes import parse_size

Context = Literal["alloc", "all", "state"]
Stacks = Literal["auto", "python", "all"]


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`vramwise.record`, in the form that the recorder works with.

    Attributes:
        folder: where files go.
        max_entries: entries of history that PyTorch keeps for each device; older ones are overwritten.
        context: for which entries stacks are kept: ``"alloc"``, ``"all"`` (those of frees too), ``"state"``
            (only live blocks) or ``None``.
        stacks: ``"python"`` for all of those, ``"auto"`` for those of some steps (see
            :class:`vramwise.recorder.sampling.Sampling`), or ``"all"`` for C++ frames too, which makes files slow to
            write.
        on_oom: whether a file is written when an allocation fails.
        oom_limit: how many of those at most.
        on_signal: number of the signal that asks for a file; ``None`` = none.
        at_end: whether one is written at the end of the recording.
        every: one after so many steps each; ``None`` = none.
        keep: how many of those remain, the newest ones.
        above: one when a device has this many bytes reserved, or this share of its memory (a float up to 1).
        strict: whether a machine that cannot record is an error, and not a warning.
    """

    folder: Path
    max_entries: int = 200_000
    context: Context | None = "alloc"
    stacks: Stacks = "auto"
    on_oom: bool = True
    oom_limit: int = 3
    on_signal: int | None = None
    at_end: bool = True
    every: int | None = None
    keep: int = 3
    above: float | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("max_entries", "oom_limit", "every", "keep"):
            value = getattr(self, name)
            if value is None and name == "every":
                continue
            # Frozen, but still being made.
            object.__setattr__(self, name, whole_number(value, name, least=1))
        if self.context not in ("alloc", "all", "state", None):
            raise ValueError(f'context is {self.context!r}; write "alloc", "all", "state" or None')
        if self.stacks not in ("auto", "python", "all"):
            raise ValueError(f'stacks is {self.stacks!r}; write "auto", "python" or "all"')

    @property
    def samples(self) -> bool:
        """Whether only the allocations of some steps get stacks."""
        return self.stacks == "auto" and self.context is not None


def threshold(above: float | str | None) -> float | None:
    """A threshold as bytes, or as a share of the device's memory where it is a float up to 1.

    >>> threshold("2GiB"), threshold(0.9), threshold(None)
    (2147483648, 0.9, None)

    Raises:
        ValueError, TypeError: it is neither a size nor a share.
    """
    if above is None:
        return None
    if isinstance(above, float):
        if not 0.0 < above <= 1.0:
            raise ValueError(f"above is {above}: a float is a share of the device's memory, above 0 and up to 1")
        return above
    try:
        size = parse_size(above)
    except (TypeError, ValueError) as error:
        raise type(error)(f"above: {error}") from None
    if size == 0:
        raise ValueError(
            f"above is {above!r}, which is 0 bytes and exceeded from the start; write a size such as '20GiB', or a "
            "share of the device's memory as a number, such as 0.9"
        )
    return size


def folder_path(folder: Any) -> Path:
    """The folder that files go to.

    Raises:
        TypeError: it is no path.
    """
    try:
        return Path(folder)
    except TypeError:
        raise TypeError(f"folder is a path such as 'snapshots', not {folder!r}") from None


def signal_number(which: int | str | None) -> int | None:
    """The number of a signal given by number or by name (``"SIGUSR1"``, ``"usr1"``).

    Raises:
        ValueError, TypeError: this system has no such signal, or it cannot be handled.
    """
    if which is None:
        return None
    if isinstance(which, bool):
        raise TypeError(f"on_signal is a signal such as 'SIGUSR1', not {which}")
    if isinstance(which, str):
        name = which.upper()
        found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
        if not isinstance(found, signal.Signals):
            text = f"on_signal: this system ({os.name}) has no signal {which!r}; write one such as 'SIGUSR1'"
            raise ValueError(text)  # noqa: TRY004 - the type is right
        number = int(found)
    else:
        try:
            number = int(signal.Signals(whole_number(which, "on_signal")))
        except ValueError:
            raise ValueError(
                f"on_signal is {which}: this system ({os.name}) has no signal of that number; write one such as "
                "'SIGUSR1'"
            ) from None
    if number in (getattr(signal, "SIGKILL", None), getattr(signal, "SIGSTOP", None)):
        raise ValueError(f"{signal.Signals(number).name} cannot be handled; use SIGUSR1 or SIGTERM")
    return number

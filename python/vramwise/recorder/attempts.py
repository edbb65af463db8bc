"""What other parts of the package tell recorders: an attempt ran out of memory and was taken back."""

from __future__ import annotations

from contextlib import suppress

from .recorder import Recorder
from .triggers import at_work


def keep(recorder: Recorder | None = None) -> None:
    """Lets recorders write a snapshot of a failed attempt, unless the failed allocation made them write one.

    PyTorch's observer is heard where its allocator failed. Of libraries that ask the driver themselves, and of errors
    that only tell of one, nobody hears. Raises nothing but interrupts: the attempt's error is worth more.

    Args:
        recorder: the one that is asked; ``None`` for all at work, innermost first.
    """
    for one in at_work() if recorder is None else [recorder]:
        with suppress(Exception):
            if not (one.options.on_oom and one.heard_failure):
                one.dump("oom-retry")

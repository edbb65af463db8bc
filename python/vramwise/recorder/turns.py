"""How a file is written undisturbed: one at a time, and without Python's collector."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class Turn:
    """One file at a time: a snapshot is as large as the history, and a signal may come while one is written."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nobody has it."""
        # Re-entrant, since the handler of a signal runs in the thread that it interrupts.
        self.lock = threading.RLock()
        self.taken = False


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Python's collector would look through the growing snapshot again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

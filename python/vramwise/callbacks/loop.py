"""For a loop of your own: one line around what it goes through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..monitor import MemoryMonitor
from ..recorder import Recorder
from ..settings import SettingsSchedule
from ._hooks import Hooks

_T = TypeVar("_T")


def steps(
    batches: Iterable[_T],
    *,
    recorder: Recorder | None = None,
    monitor: MemoryMonitor | None = None,
    schedule: SettingsSchedule | None = None,
) -> Iterator[_T]:
    """Goes through the batches and ends a step behind each.

    ::

        recorder = vramwise.record("snapshots")
        for batch in steps(batches, recorder=recorder, monitor=vramwise.log_memory(print, every=50)):
            train(batch)

    Args:
        batches: what the loop goes through.
        recorder: begun with the first batch and stopped behind the last, unless it was at work before.
        monitor: what says how much memory is in use.
        schedule: settings by the number of the step (or for the phase ``"train"``); the former ones come back at
            the end.

    Yields:
        The batches. A loop that is left early by ``break`` or an error ends it all as well.
    """
    hooks = Hooks(recorder, monitor, schedule)
    hooks.begin()
    try:
        for batch in batches:
            yield batch
            hooks.step()
    finally:
        hooks.end()

"""Phases of a recording, each tuned by itself: what :meth:`vramwise.SettingsSchedule.from_history` finds.

Cutting and tuning are the native part's; here is which events belong to which phase.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, NotReproducedError

if TYPE_CHECKING:
    from ..files import Snapshot, Span
    from ..reports import TuneReport

# What ``Recorder.step`` puts into a history.
_STEP = "vramwise.step"


@dataclass(frozen=True)
class Part:
    """Events of one occurrence of a phase: the first, and the first behind it."""

    phase: str | int
    first: int
    last: int


def parts(spans: Sequence[Span], phases: Iterable[str | int], events: int) -> list[Part]:
    """Where each phase is in a history, in the order of the events.

    Args:
        spans: the annotated blocks of the history.
        phases: names of annotations, with or without a number behind a ``#``; or numbers of steps, each of which
            begins a phase that lasts to the next one, or to the end.
        events: how many events there are.

    Raises:
        ArgumentError: a phase is not there, or names and steps are mixed.
    """
    if isinstance(phases, (str, int)):
        # A name is one phase, not as many as it has letters.
        raise ArgumentError(f"phases are several: write [{phases!r}]")
    wanted = list(dict.fromkeys(phases))
    steps = [phase for phase in wanted if isinstance(phase, int) and not isinstance(phase, bool)]
    names = [phase for phase in wanted if isinstance(phase, str)]
    if len(steps) + len(names) != len(wanted) or (steps and names) or not wanted:
        raise ArgumentError("phases are names of annotations, or numbers of steps, and not both: give at least one")
    found = _by_step(spans, sorted(steps), events) if steps else _by_name(spans, names)
    return sorted(found, key=lambda part: (part.first, -part.last))


def _by_name(spans: Sequence[Span], names: list[str]) -> list[Part]:
    found: list[Part] = []
    for name in names:
        own = [span for span in spans if name in (span.name, span.name.rpartition("#")[0])]
        own = [span for span in own if span.last > span.first]
        if not own:
            known = dict.fromkeys(span.name.rpartition("#")[0] or span.name for span in spans)
            raise ArgumentError(
                f"no annotation that is called {name!r} has events; there are: {', '.join(list(known)[:10]) or 'none'}"
            )
        found += [Part(name, span.first, span.last) for span in own]
    return found


def _by_step(spans: Sequence[Span], steps: list[int], events: int) -> list[Part]:
    ends = {span.name: span.last for span in spans}
    begins = []
    for step in steps:
        end = 0 if step == 0 else ends.get(f"{_STEP}#{step - 1}")
        if end is None or step < 0:
            raise ArgumentError(f"the history has no end of step {step - 1} (the annotation {_STEP}#{step - 1})")
        begins.append(end)
    lasts = [*begins[1:], events]
    empty = [step for step, first, last in zip(steps, begins, lasts, strict=True) if first >= last]
    if empty:
        raise ArgumentError(f"nothing is allocated or freed from step {empty[0]} to the next one that is named")
    return [Part(step, first, last) for step, first, last in zip(steps, begins, lasts, strict=True)]


def tuned(snapshot: Snapshot, found: Sequence[Part], most: int, options: dict[str, Any]) -> dict[str | int, TuneReport]:
    """What is best for each phase.

    Raises:
        NotReproducedError: no part of a phase can be replayed by itself.
    """
    device = options.get("device")
    reports: dict[str | int, TuneReport] = {}
    for phase in dict.fromkeys(part.phase for part in found):
        own = sorted((part for part in found if part.phase == phase), key=lambda part: part.first - part.last)[:most]
        cut = [snapshot.slice(part.first, part.last, device=device) for part in own]
        reports[phase] = _tuned(cut, options)
    return reports


def _tuned(cut: list[Snapshot], options: dict[str, Any]) -> TuneReport:
    """Of parts that cannot be replayed by themselves, because of what was before them, those that can speak."""
    try:
        return cut[0].tune(*cut[1:], **options)
    except NotReproducedError as error:
        rest = [one for one in cut if one.name != os.fspath(error.path)]
        if not rest or len(rest) == len(cut):
            raise
    return _tuned(rest, options)


def changes(found: Sequence[Part], whole: dict[str | int, str], base: str, events: int) -> dict[int, str]:
    """Which settings begin to hold before which event: those of the innermost phase, and ``base`` outside of all.

    Args:
        found: as :func:`parts` gives it.
        whole: the whole string for each phase.
        base: what holds elsewhere.
        events: how many events there are; what would begin behind the last one is left out.
    """
    told: dict[int, str] = {}
    now = base
    for event in sorted({event for part in found for event in (part.first, part.last) if event < events}):
        around = [part for part in found if part.first <= event < part.last]
        wanted = whole[max(around, key=lambda part: part.first).phase] if around else base
        if wanted != now:
            told[event] = now = wanted
    return told

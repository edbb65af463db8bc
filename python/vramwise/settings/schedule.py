"""Settings that change with what the program is doing: training, evaluation, from some step on."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._numbers import whole_number
from .._say import warn
from ..errors import NotAvailableError, SettingsError, UnreadableFileError
from . import strings

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..files import Snapshot
    from ..reports import TuneReport


class SettingsSchedule:
    """Allocator settings for each phase of a program.

    Each phase's string is laid over the settings that the process had when the schedule was first used: an option
    that a phase does not mention has its value from there, whatever another phase has set.

    ::

        schedule = vramwise.SettingsSchedule({"train": "max_split_size_mb:128", "eval": "expandable_segments:True"})
        with schedule:
            for epoch in range(epochs):
                with schedule.phase("train"):
                    train()
                with schedule.phase("eval"):
                    evaluate()

    Numbers stand for steps, from 0: ``{0: "", 1000: "garbage_collection_threshold:0.8"}`` and ``schedule.step()`` at
    the end of each. Which options can change while a program runs is said at :func:`vramwise.set_allocator_settings`.

    These are settings of PyTorch's own allocator. Under vramwise's, a schedule warns once and changes nothing.

    Args:
        phases: settings, as in ``PYTORCH_CUDA_ALLOC_CONF``, by the name of a phase or by the first step they are for.
        release_cache: call ``torch.cuda.empty_cache()`` where settings change, so that no block cached under the old
            ones is left. That waits for the device, and memory must be taken again.

    Attributes:
        current: what this schedule has set last; ``None`` = nothing yet, and under vramwise's allocator for good.
        reports: from :meth:`from_history`, what was found for each phase.
        changes: from :meth:`from_history`, which settings begin to hold before which event of the recording: what
            ``snapshot.replay(conf_at=...)`` takes.

    Raises:
        ValueError, TypeError: a phase is neither a name nor a step, or its settings are no text.
        SettingsError: a string is refused, or has an option that cannot change while the program runs.
    """

    def __init__(self, phases: Mapping[str | int, str], *, release_cache: bool = False) -> None:
        from .current import check_allocator_settings

        phases = _named(phases)
        # Another release may refuse what this process's does, and the other way round.
        release = str(getattr(sys.modules.get("torch"), "__version__", "")) or None
        self._phases = {name: strings.options(text) for name, text in phases.items()}
        for name, text in phases.items():
            for option, why in strings.FIXED_AT_START.items():
                if option in self._phases[name]:
                    raise SettingsError(
                        f"phase {name!r}: {option} cannot change while the program runs: {why}", settings=text
                    )
            check_allocator_settings(text, release)
        self.reports: dict[str | int, TuneReport] = {}
        self.changes: dict[int, str] = {}
        self._steps = sorted(name for name in phases if isinstance(name, int))
        self._release_cache = release_cache
        self._base: str | None = None
        # Values, when the schedule was first used, of options that outlive later strings.
        self._held: dict[str, str] = {}
        self._next = 0
        self._told = False
        self.current: str | None = None

    @classmethod
    def from_tune(
        cls, reports: Mapping[str | int, str | os.PathLike[str] | Mapping[str, Any]], *, release_cache: bool = False
    ) -> SettingsSchedule:
        """A schedule of what ``vramwise tune --json`` recommends for each phase.

        A report is about the whole of a recording: for one per phase, record each phase by itself. Where one recording
        has them all, :meth:`from_history` does it.

        Args:
            reports: for each phase (or first step) a report: a file, or what ``json.load`` gives of one.
            release_cache: as for the schedule itself.

        Raises:
            UnreadableFileError: a file is no report of ``vramwise tune --json``.
            SettingsError: as for the schedule itself.
        """
        phases = {phase: _recommended(report) for phase, report in reports.items()}
        return cls(phases, release_cache=release_cache)

    @classmethod
    def from_history(
        cls,
        snapshot: Snapshot | str | os.PathLike[str],
        phases: Iterable[str | int],
        *,
        slices: int = 4,
        release_cache: bool = False,
        **options: Any,
    ) -> SettingsSchedule:
        """A schedule of what is best for each phase of one recording.

        The history is cut into the phases, and each is tuned by itself, from the state that it began in. Other phases'
        memory stays where it was, so that what the changes do together is another question; its answer is one replay
        of the whole::

            schedule = vramwise.SettingsSchedule.from_history("end_rank0_step500.pickle", ["train", "eval"])
            whole = vramwise.read("end_rank0_step500.pickle").replay(conf_at=schedule.changes)

        Args:
            snapshot: a recording with its history, or a file of one.
            phases: names of annotations (:meth:`Recorder.phase`, ``record_function``), or numbers of steps
                (:meth:`Recorder.step`), each of which begins a phase that lasts to the next one, or to the end.
            slices: of a phase that comes more often, so many are tuned together: those with the most events.
            release_cache: as for the schedule itself.
            options: ``capacity``, ``candidates``, ``jitter``, ``seed``, ``total``, ``device``, ``torch``, as for
                :meth:`Snapshot.tune`.

        Raises:
            ArgumentError: a phase is not in the history, or names and steps are mixed.
            NotReproducedError: the model does not reproduce any part of a phase.
            NoHistoryError, UnreadableFileError: there is no history; the file is no snapshot.
        """
        from .. import files
        from . import history

        slices = whole_number(slices, "slices", least=1)
        snapshot = snapshot if isinstance(snapshot, files.Snapshot) else files.read(snapshot)
        device = options.get("device")
        events = snapshot.event_count(device=device)
        found = history.parts(snapshot.spans(device=device), phases, events)
        reports = history.tuned(snapshot, found, slices, options)
        schedule = cls(
            {phase: report.recommended.conf for phase, report in reports.items()}, release_cache=release_cache
        )
        schedule.reports = reports
        recorded = next(iter(reports.values())).baseline.conf
        whole = {phase: schedule._over(recorded, phase) for phase in reports}
        schedule.changes = history.changes(found, whole, recorded, events)
        return schedule

    def settings_for(self, phase: str | int) -> str:
        """The whole string for a phase (or for a step), as it would be set now.

        Raises:
            KeyError: there is no such phase, or no settings for so early a step.
        """
        return self._over(self._base_settings(), phase)

    def _over(self, base: str, phase: str | int) -> str:
        """A phase's settings laid over others."""
        wanted = self._options(phase)
        return strings.text_of({**self._kept(), **strings.options(base), **wanted})

    def _kept(self) -> dict[str, str]:
        """An option that only another phase sets would stay from there, so each string says all of them."""
        return {
            name: self._held.get(name, strings.DEFAULTS[name])
            for options in self._phases.values()
            for name in options
            if name not in strings.RESET_BY_EACH_PARSE and name in strings.DEFAULTS
        }

    def enter(self, phase: str | int) -> None:
        """Sets the settings of a phase, or of a step; nothing happens where they are in force.

        Raises:
            KeyError: as :meth:`settings_for`.
            SettingsError, NotAvailableError: as :func:`vramwise.set_allocator_settings`, but for vramwise's own
                allocator, which is a warning.
        """
        self._set(self.settings_for(phase))

    def enter_if_there(self, phase: str) -> None:
        """The same for a phase that the schedule may not have: then nothing happens."""
        if phase in self._phases:
            self.enter(phase)

    def begin(self) -> None:
        """Remembers what is in force, and sets what step 0 is to run under where the schedule has steps."""
        self._base_settings()
        if self._steps and self._steps[0] == 0:
            self.enter(0)

    @contextlib.contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """A block for ``with`` that runs under the settings of a phase; those before it come back afterwards."""
        before = self.current
        self.enter(phase)
        try:
            yield
        finally:
            if before in (None, self._base):
                self.restore()
            elif before is not None:
                self._set(before)

    def step(self) -> None:
        """Ends a step, and sets what the next one is to run under."""
        self._next += 1
        if self._steps and self._next >= self._steps[0]:
            self.enter(self._next)

    def restore(self) -> None:
        """Sets what was in force before the schedule was used."""
        if self._base is None:
            return
        kept = self._kept()
        if kept and self.current not in (None, self._base):
            # What the base does not mention would stay as a phase has set it.
            self._set(strings.text_of({**kept, **strings.options(self._base)}))
        self._set(self._base)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def _options(self, phase: str | int) -> dict[str, str]:
        if isinstance(phase, str):
            if phase not in self._phases:
                known = ", ".join(repr(name) for name in self._phases)
                raise KeyError(f"there is no phase {phase!r}; there are {known or 'none'}")
            return self._phases[phase]
        first = max((step for step in self._steps if step <= phase), default=None)
        if first is None:
            raise KeyError(
                f"there are no settings for step {phase}: the first are for step {min(self._steps, default=0)}"
            )
        return self._phases[first]

    def _base_settings(self) -> str:
        if self._base is None:
            from .current import allocator_settings, outliving

            self._base = allocator_settings()
            self._held = outliving(strings.DEFAULTS, self._base)
        return self._base

    def _set(self, text: str) -> None:
        if text == self.current:
            return
        from .._torch_access import need_torch
        from .current import OTHER_ALLOCATOR, set_allocator_settings

        try:
            set_allocator_settings(text)
        except NotAvailableError as error:
            if error.missing != OTHER_ALLOCATOR:
                raise
            if not self._told:
                self._told = True
                warn(f"the schedule changes nothing: {error}")
            return
        self.current = text
        torch = need_torch("vramwise.SettingsSchedule")
        if self._release_cache and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _named(phases: Mapping[str | int, str]) -> dict[str | int, str]:
    """The phases as they were given, steps as Python's own numbers.

    Raises:
        TypeError: something is neither a name nor a number, or settings are no text.
        ValueError: a step is less than 0.
    """
    if not isinstance(phases, Mapping):
        raise TypeError(f"phases are a mapping from names or steps to settings, not {phases!r}")
    named: dict[str | int, str] = {}
    for name, text in phases.items():
        if not isinstance(text, str):
            raise TypeError(f"the settings of phase {name!r} are a text, not {text!r}")
        try:
            named[name if isinstance(name, str) else whole_number(name, "a step", least=0)] = text
        except ValueError:
            raise ValueError(f"{name!r} is no step: steps are counted from 0") from None
    return named


def _recommended(report: str | os.PathLike[str] | Mapping[str, Any]) -> str:
    where = "the report"
    if not isinstance(report, Mapping):
        where = os.fspath(report)
        try:
            report = json.loads(Path(report).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnreadableFileError(f"{where} cannot be read as JSON: {error}", path=where) from None
    conf = None
    if isinstance(report, Mapping) and report.get("schema") == 1 and isinstance(report.get("recommended"), Mapping):
        conf = report["recommended"].get("conf")
    if not isinstance(conf, str):
        raise UnreadableFileError(
            f'{where} is no report of `vramwise tune --json`: it has no "recommended" with a "conf"', path=where
        )
    return conf

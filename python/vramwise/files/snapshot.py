"""Snapshots that PyTorch wrote, asked.

Nothing here needs torch or a GPU, and no code from a file is ever run: the reader knows only plain data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import _html
from .._numbers import whole_number
from ..errors import ArgumentError, NotReproducedError
from ..reports import (
    DiffReport,
    ExplainReport,
    InspectReport,
    LeaksReport,
    ReplayReport,
    TuneReport,
    ValidateReport,
)
from .asking import Answer, as_options, ask, count, typed
from .spans import Span
from .tables import Table

if TYPE_CHECKING:
    from .. import _native

StrPath = str | os.PathLike[str]
Size = int | str
"""Bytes, or a text such as ``"40GiB"``."""


class Snapshot:
    """A memory snapshot: what was in memory when it was taken, and the history that led there.

    Methods that take ``device`` look at one device; without it at all, or at the first that has a history. Sizes may
    be given as bytes or as a text such as ``"40GiB"``. ``torch`` is the version whose allocator is meant, such as
    ``"2.8"``; without it, it is what the file looks like.

    Each call is answered anew, holds no lock of Python's and can be interrupted with Ctrl-C.

    Args:
        recording: what the native part has read; :func:`vramwise.read` makes a snapshot of it.
    """

    def __init__(self, recording: _native.Recording) -> None:
        self._recording = recording

    @property
    def name(self) -> str:
        """The path as it was given, or ``<bytes>``."""
        return self._recording.name

    @property
    def device_count(self) -> int:
        """Number of devices, those without memory in use included."""
        return self._recording.devices

    def __repr__(self) -> str:
        events = sum(self._recording.events)
        return f"<vramwise.Snapshot {self.name!r}: {events:,} events, {self._reserved} reserved>"

    def _repr_html_(self) -> str:
        try:
            return _html.snapshot(self.peak())
        except ArgumentError:
            # A notebook shows what there is, also of a file in which nothing is recorded.
            return _html.report(str(self.summary()))

    @property
    def _reserved(self) -> str:
        return _html.human(sum(self._recording.reserved_bytes))

    def summary(self, *, device: int | None = None) -> ValidateReport:
        """What is in the file, and whether it can be replayed.

        Raises:
            ArgumentError: There is no such device.
        """
        return typed(ValidateReport, self._ask("validate", as_options(device=self._checked(device))))

    def peak(
        self,
        *,
        at: int | str = "peak",
        by: str = "stack",
        frames: int = 1,
        first: int | None = None,
        last: int | None = None,
        capacity: Size | None = None,
        rules: StrPath | None = None,
        top: int = 10,
        device: int | None = None,
        torch: str | None = None,
    ) -> InspectReport:
        """Where the memory went: the peaks, who held them and what for.

        Args:
            at: the moment to look at: ``"peak"`` (of allocated memory), ``"end"``, or the number of an event.
            by: how blocks are grouped: ``"stack"``, ``"module"``, ``"stream"``, ``"pool"``, ``"size"``,
                ``"category"`` or ``"phase"``.
            frames: frames of the user's own code that tell two stacks apart.
            first: look for peaks from this event on.
            last: look for peaks up to this event.
            capacity: bytes that the process was allowed to hold; some replays need to know it.
            rules: TOML file with rules for categories of your own.
            top: groups in the report.
            device: the device.
            torch: the version whose allocator is meant.

        Raises:
            ArgumentError: An argument means nothing for this file.
        """
        options = as_options(
            at=at,
            by=by,
            frames=frames,
            capacity=capacity,
            rules=None if rules is None else os.fspath(rules),
            top=top,
            device=self._checked(device),
            torch=torch,
            first=first,
            last=last,
        )
        return typed(InspectReport, self._ask("inspect", options))

    def replay(
        self,
        *,
        conf: str | None = None,
        conf_at: dict[int, str] | None = None,
        capacity: Size | None = None,
        addresses: Snapshot | None = None,
        emit: StrPath | None = None,
        allocator: str | None = None,
        total: Size | None = None,
        device: int | None = None,
        torch: str | None = None,
    ) -> ReplayReport:
        """Replays the history through the model of PyTorch's allocator.

        Without ``conf``, ``conf_at``, ``capacity`` and ``addresses`` it verifies: every address, every call to the
        driver and the final state are compared with the recording. With them it tells what would have been.

        Args:
            conf: settings, as in ``PYTORCH_CUDA_ALLOC_CONF``; without it, the recorded ones.
            conf_at: settings that begin to hold before an event: ``{event: settings}``.
            capacity: bytes that the process may hold.
            addresses: a recording to take the driver's addresses from, instead of a model of the driver.
            emit: a file to write the state at the end to, as a snapshot. It must not exist.
            allocator: ``"vramwise"`` asks what the program would have held under vramwise's own allocator
                (``drop_in`` of the report), too.
            total: memory of the card, which decides how expandable segments are reserved.
            device: the device.
            torch: the version whose allocator is meant.

        Raises:
            SettingsError: PyTorch would refuse the settings.
            NoHistoryError: The file has no history.
            ArgumentError: An argument means nothing for this file.
        """
        options = as_options(
            conf=conf, capacity=capacity, allocator=allocator, total=total, device=self._checked(device), torch=torch
        )
        if conf_at is not None and not isinstance(conf_at, Mapping):
            raise TypeError(f"conf_at is a mapping from events to settings, not {conf_at!r}")
        for event, settings in (conf_at or {}).items():
            count(event, "an event of conf_at")
            if not isinstance(settings, str):
                raise TypeError(f"the settings from event {event} on are a text, not {settings!r}")
            options.append(f"--conf-at={event}={settings}")
        snapshots = [self]
        if addresses is not None:
            _refuse_others(addresses)
            options.append(f"--addresses={addresses.name}")
            snapshots.append(addresses)
        if emit is not None:
            options.append(f"--emit={os.fspath(emit)}")
        return typed(ReplayReport, ask("replay", options, [self.name], snapshots))

    def tune(
        self,
        *more: Snapshot,
        capacity: Size | None = None,
        candidates: int | None = None,
        jitter: int = 0,
        seed: int = 0,
        plot: StrPath | None = None,
        total: Size | None = None,
        device: int | None = None,
        torch: str | None = None,
    ) -> TuneReport:
        """Searches the allocator settings that are best for this program, by exact replay.

        Args:
            more: other ranks or runs that the same settings must be good for.
            capacity: bytes that the process may hold; settings that run out of it rank last.
            candidates: most settings to try.
            jitter: random variations of the history to try each setting on, too.
            seed: seed of the variations.
            plot: an SVG file to draw memory over time into, before and after. It must not exist.
            total: memory of the card, which decides how expandable segments are reserved.
            device: the device.
            torch: the version whose allocator is meant.

        Returns:
            The report; ``recommended.env`` is the line to paste.

        Raises:
            NotReproducedError: The model does not reproduce a recording, so that nothing can be recommended.
            NoHistoryError: A file has no history.
            ArgumentError: An argument means nothing for these files.
        """
        options = as_options(
            capacity=capacity,
            candidates=candidates,
            jitter=jitter,
            seed=seed,
            plot=None if plot is None else os.fspath(plot),
            total=total,
            device=self._checked(device),
            torch=torch,
        )
        snapshots = [self, *more]
        _refuse_others(*more)
        answer = ask("tune", options, [snapshot.name for snapshot in snapshots], snapshots)
        data = json.loads(answer[0])
        if data["recommended"] is None:
            raise NotReproducedError(
                data["error"],
                path=data["file"],
                device=data["device"],
                allocs=data["allocs"],
                allocs_exact=data["allocs_exact"],
                first_divergence_event=data["first_divergence_event"],
            )
        return typed(TuneReport, answer)

    def explain(
        self,
        *,
        capacity: Size | None = None,
        total: Size | None = None,
        frames: int = 1,
        top: int = 10,
        device: int | None = None,
        torch: str | None = None,
    ) -> ExplainReport:
        """Why the program ran out of memory, and which change would have saved it, proved by replay.

        Args:
            capacity: bytes that the process could hold; without it, as was recorded.
            total: memory of the card, to tell other processes from PyTorch itself.
            frames: frames of the user's own code that name a place.
            top: rows in the report's tables.
            device: the device.
            torch: the version whose allocator is meant.

        Raises:
            NoHistoryError: The file has no history.
            ArgumentError: An argument means nothing for this file.
        """
        options = as_options(
            capacity=capacity, total=total, frames=frames, top=top, device=self._checked(device), torch=torch
        )
        return typed(ExplainReport, self._ask("explain", options))

    def leaks(self, *, marker: str | None = None, frames: int = 1, device: int | None = None) -> LeaksReport:
        """What grows from step to step and is never given back.

        Args:
            marker: annotation that ends each step, in full or a part of it.
            frames: frames of the user's own code that name a place.
            device: the device.

        Raises:
            NoHistoryError: The file has no history.
            ArgumentError: No annotation is called so.
        """
        options = as_options(marker=marker, frames=frames, device=self._checked(device))
        return typed(LeaksReport, self._ask("leaks", options))

    def diff(
        self,
        other: Snapshot,
        *,
        by: str = "stack",
        frames: int = 1,
        top: int = 10,
        device: int | None = None,
        torch: str | None = None,
    ) -> DiffReport:
        """What changed from this snapshot to ``other``: settings, peaks, waste, and which lines hold more or less.

        Args:
            other: the snapshot after.
            by: how blocks are grouped, as in :meth:`peak`.
            frames: frames of the user's own code that tell two stacks apart.
            top: rows in the report.
            device: the device.
            torch: the version whose allocator is meant.

        Raises:
            ArgumentError: An argument means nothing for these files.
        """
        _refuse_others(other)
        options = as_options(by=by, frames=frames, top=top, device=self._checked(device), torch=torch)
        return typed(DiffReport, ask("diff", options, [self.name, other.name], [self, other]))

    def events(self, *, device: int | None = None) -> Table:
        """The history as a table, one row an event, oldest first; of one ``device``, or of all."""
        return Table(self._recording.table("events", self._checked(device)))

    def blocks(self, *, device: int | None = None) -> Table:
        """The blocks that were there when the snapshot was taken, as a table; of one ``device``, or of all."""
        return Table(self._recording.table("blocks", self._checked(device)))

    def segments(self, *, device: int | None = None) -> Table:
        """The segments that were there when the snapshot was taken, as a table; of one ``device``, or of all."""
        return Table(self._recording.table("segments", self._checked(device)))

    def spans(self, *, device: int | None = None) -> list[Span]:
        """The blocks that the program has annotated (``record_function``, :meth:`Recorder.phase`, the profiler).

        Args:
            device: the device; without it, the first that has a history.

        Returns:
            Them, in the order in which they end; those that never end are last, and end with the history.

        Raises:
            NoHistoryError: The file has no history.
            ArgumentError: There is no such device.
        """
        return [Span(*span) for span in self._recording.spans(self._checked(device))]

    def slice(self, first: int, last: int | None = None, *, device: int | None = None) -> Snapshot:
        """A part of the history as a snapshot of its own, with the state behind it, like ``vramwise slice``.

        Args:
            first: the first event; the part is widened to whole operations of the allocator.
            last: the first event behind the part; ``None`` = to the end.
            device: the device; without it, the first that has a history.

        Raises:
            ArgumentError: There is no such part, or the state behind it cannot be known.
            NoHistoryError: The file has no history.
        """
        device = self._checked(device)
        first, events = count(first, "first"), self.event_count(device=device)
        last = events if last is None else count(last, "last")
        if events and not first < last <= events:
            raise ArgumentError(
                f"there are no events from {first} up to {last}: {self.name} has {events:,} of them, counted from 0, "
                "and last is the first one behind the part"
            )
        name = f"{self.name}[{first}:{last}]"
        return Snapshot(self._recording.slice(first, last, name, device))

    def event_count(self, *, device: int | None = None) -> int:
        """Events in the history of a device; without it, of the first that has one; 0 where none has.

        Raises:
            ArgumentError: There is no such device.
        """
        counts = self._recording.events
        device = self._checked(device)
        return next((count for count in counts if count), 0) if device is None else counts[device]

    def _checked(self, device: int | None) -> int | None:
        if device is None:
            return None
        number = whole_number(device, "device")
        if not 0 <= number < self.device_count:
            raise ArgumentError(f"there is no device {number}: {self.name} has {self.device_count}")
        return number

    def _ask(self, command: str, options: list[str]) -> Answer:
        return ask(command, options, [self.name], [self])


def _refuse_others(*snapshots: object) -> None:
    """What is compared with a snapshot, or tuned with it, is one too."""
    for one in snapshots:
        if not isinstance(one, Snapshot):
            raise TypeError(f"{one!r} is no Snapshot; vramwise.read() makes one of a file")

"""The report of ``vramwise leaks``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class SomeStacksReport:
    steps_with_stacks: int
    """How many of ``steps`` were."""
    told_apart_by: str
    """``stack``: growth is looked for in those; ``size``: in all, by the sizes of blocks."""
    note: str
    """The same as a sentence."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> SomeStacksReport:
        return cls(**data)


@dataclass(frozen=True)
class LeakReport:
    place: str
    frames: list[str]
    """Innermost first."""
    bytes_per_step: int
    blocks_per_step: float
    steps: int
    steps_grown: int
    bytes: int
    confidence: float
    series_bytes: list[int]
    """Bytes live at the end of each step."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> LeakReport:
        return cls(**data)


@dataclass(frozen=True)
class FilledReport:
    place: str
    bytes: int
    last_step: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FilledReport:
        return cls(**data)


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be used, and why."""

    file: str
    reason: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Unreadable:
        return cls(**data)


@dataclass(frozen=True)
class Device:
    device: int
    events: int
    steps_from: str
    """``marker``, ``annotation``, ``period`` or ``none``."""
    steps_by: str | None
    """The annotation, or the allocation that begins each step."""
    steps: int
    first_counted_step: int | None
    """The first step, from 1, whose growth is counted; ``null`` where there are too few."""
    left_out_reason: str | None
    """Why earlier ones are not."""
    too_few_steps: bool
    """Whether there are too few steps to tell."""
    some_stacks: SomeStacksReport | None
    """Where only some of the steps were recorded with stacks; ``null`` where all are alike."""
    leaks: list[LeakReport]
    filled: list[FilledReport]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Device:
        nested = {
            "some_stacks": None if data["some_stacks"] is None else SomeStacksReport._of(data["some_stacks"]),
            "leaks": [LeakReport._of(item) for item in data["leaks"]],
            "filled": [FilledReport._of(item) for item in data["filled"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class File:
    file: str
    devices: list[Device]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> File:
        nested = {
            "devices": [Device._of(item) for item in data["devices"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class LeaksReport(BaseReport):
    """What ``vramwise leaks`` reports; ``print`` shows it as the program does."""

    leaks_found: int
    files: list[File]
    unreadable: list[Unreadable]
    """The files that cannot be used; always empty where one was named."""

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> LeaksReport:
        nested = {
            "files": [File._of(item) for item in data["files"]],
            "unreadable": [Unreadable._of(item) for item in data["unreadable"]],
        }
        return cls(**_but_schema(data) | base | nested)

"""The report of ``vramwise leaks``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport


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
        return cls(
            place=data["place"],
            frames=data["frames"],
            bytes_per_step=data["bytes_per_step"],
            blocks_per_step=data["blocks_per_step"],
            steps=data["steps"],
            steps_grown=data["steps_grown"],
            bytes=data["bytes"],
            confidence=data["confidence"],
            series_bytes=data["series_bytes"],
        )


@dataclass(frozen=True)
class FilledReport:
    place: str
    bytes: int
    last_step: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FilledReport:
        return cls(
            place=data["place"],
            bytes=data["bytes"],
            last_step=data["last_step"],
        )


@dataclass(frozen=True)
class Device:
    device: int
    events: int
    steps_from: str
    """``marker``, ``annotation``, ``period`` or ``none``."""
    steps_by: str | None
    """The annotation, or the allocation that begins each step."""
    steps: int
    too_few_steps: bool
    """Whether there are too few steps to tell."""
    leaks: list[LeakReport]
    filled: list[FilledReport]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Device:
        return cls(
            device=data["device"],
            events=data["events"],
            steps_from=data["steps_from"],
            steps_by=data["steps_by"],
            steps=data["steps"],
            too_few_steps=data["too_few_steps"],
            leaks=[LeakReport._of(item) for item in data["leaks"]],
            filled=[FilledReport._of(item) for item in data["filled"]],
        )


@dataclass(frozen=True)
class File:
    file: str
    devices: list[Device]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> File:
        return cls(
            file=data["file"],
            devices=[Device._of(item) for item in data["devices"]],
        )


@dataclass(frozen=True, repr=False)
class LeaksReport(BaseReport):
    """What ``vramwise leaks`` reports; ``print`` shows it as the program does."""

    leaks_found: int
    files: list[File]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> LeaksReport:
        return cls(
            leaks_found=data["leaks_found"],
            files=[File._of(item) for item in data["files"]],
            **base,
        )

"""The report of ``vramwise validate``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport


@dataclass(frozen=True)
class DeviceReport:
    device: int
    events: int
    actions: dict[str, int]
    events_with_stack: int
    time_span_us: int | None
    streams: int
    pools: int
    segments: int
    expandable_segments: int
    blocks: int
    reserved_bytes: int
    active_bytes: int
    starts_empty: bool
    """Whether the history begins with an empty cache."""
    replayable: str
    reasons: list[str]
    """Why not, or why only in part."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DeviceReport:
        return cls(
            device=data["device"],
            events=data["events"],
            actions=data["actions"],
            events_with_stack=data["events_with_stack"],
            time_span_us=data["time_span_us"],
            streams=data["streams"],
            pools=data["pools"],
            segments=data["segments"],
            expandable_segments=data["expandable_segments"],
            blocks=data["blocks"],
            reserved_bytes=data["reserved_bytes"],
            active_bytes=data["active_bytes"],
            starts_empty=data["starts_empty"],
            replayable=data["replayable"],
            reasons=data["reasons"],
        )


@dataclass(frozen=True)
class WarningReport:
    code: str
    message: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> WarningReport:
        return cls(
            code=data["code"],
            message=data["message"],
        )


@dataclass(frozen=True, repr=False)
class ValidateReport(BaseReport):
    """What ``vramwise validate`` reports; ``print`` shows it as the program does."""

    file: str
    other_producer: str | None
    """Why the file is not from PyTorch's allocator; ``null`` if it seems to be."""
    torch_version_guess: str | None
    settings: str | None
    """The settings string; ``null`` where the file does not say."""
    replayable: str
    """Whether any device can be replayed: "yes", "partly" or "no"."""
    devices: list[DeviceReport]
    annotations: int
    stacks: int
    frames: int
    unknown_keys: dict[str, int]
    warnings: list[WarningReport]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> ValidateReport:
        return cls(
            file=data["file"],
            other_producer=data["other_producer"],
            torch_version_guess=data["torch_version_guess"],
            settings=data["settings"],
            replayable=data["replayable"],
            devices=[DeviceReport._of(item) for item in data["devices"]],
            annotations=data["annotations"],
            stacks=data["stacks"],
            frames=data["frames"],
            unknown_keys=data["unknown_keys"],
            warnings=[WarningReport._of(item) for item in data["warnings"]],
            **base,
        )

"""The report of ``vramwise validate``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


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
        return cls(**data)


@dataclass(frozen=True)
class WarningReport:
    code: str
    message: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> WarningReport:
        return cls(**data)


@dataclass(frozen=True, repr=False)
class ValidateReport(BaseReport):
    """What ``vramwise validate`` reports; ``print`` shows it as the program does."""

    file: str
    other_producer: str | None
    """Why the file is not from PyTorch's allocator; ``null`` if it seems to be."""
    allocator: str
    """``pytorch``, or ``vramwise`` where that was in its place."""
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
        nested = {
            "devices": [DeviceReport._of(item) for item in data["devices"]],
            "warnings": [WarningReport._of(item) for item in data["warnings"]],
        }
        return cls(**_but_schema(data) | base | nested)

"""The report of ``vramwise tune``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class FileReport:
    file: str
    device: int
    events: int
    allocs: int
    allocs_exact: int
    exact: bool
    recorded_allocator: str
    """``pytorch``, or ``vramwise`` where that was in its place: then its blocks are not compared."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FileReport:
        return cls(**data)


@dataclass(frozen=True)
class DeviceCalls:
    malloc: int
    free: int
    map: int
    unmap: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DeviceCalls:
        return cls(**data)


@dataclass(frozen=True)
class Recommended:
    conf: str
    peak_reserved_bytes: int
    peak_reserved_bytes_range: tuple[int, int]
    peak_allocated_bytes: int
    oom_rate: float
    largest_free_block_bytes: int
    inactive_split_bytes: int
    num_alloc_retries: int
    device_calls: DeviceCalls
    device_call_ms: float
    smallest_capacity_bytes: int | None
    dominated: bool
    env: str | None
    """The line to put into the environment; null where nothing needs to be set."""
    env_alternatives: list[str]
    """The same for other names of the variable that this version reads."""
    changes_anything: bool

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Recommended:
        nested = {
            "peak_reserved_bytes_range": tuple(data["peak_reserved_bytes_range"]),
            "device_calls": DeviceCalls._of(data["device_calls"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Limit:
    peak_live_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Limit:
        return cls(**data)


@dataclass(frozen=True)
class DropInReport:
    """The worst of the files."""

    peak_held_bytes: int
    """Most physical memory held at one time, bytes."""
    ratio: float | None
    """Held ÷ asked for, at their peaks."""
    oom_runs: int
    """Files whose program runs out of memory."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DropInReport:
        return cls(**data)


@dataclass(frozen=True)
class Load:
    kind: str
    why: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Load:
        return cls(**data)


@dataclass(frozen=True)
class OptionReport:
    option: str
    tried: int
    best: str | None
    best_change_bytes: int
    worst_change_bytes: int
    text: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> OptionReport:
        return cls(**data)


@dataclass(frozen=True)
class Candidate:
    conf: str
    peak_reserved_bytes: int
    peak_reserved_bytes_range: tuple[int, int]
    peak_allocated_bytes: int
    oom_rate: float
    largest_free_block_bytes: int
    inactive_split_bytes: int
    num_alloc_retries: int
    device_calls: DeviceCalls
    device_call_ms: float
    smallest_capacity_bytes: int | None
    dominated: bool

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Candidate:
        nested = {
            "peak_reserved_bytes_range": tuple(data["peak_reserved_bytes_range"]),
            "device_calls": DeviceCalls._of(data["device_calls"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class TuneReport(BaseReport):
    """What ``vramwise tune`` reports; ``print`` shows it as the program does."""

    files: list[FileReport]
    torch_version: str
    capacity_bytes: int | None
    baseline: Candidate
    recommended: Recommended
    gain_bytes: int
    gain_percent: float
    candidates: list[Candidate]
    limit: Limit
    drop_in: DropInReport
    """The same programs under vramwise's own allocator."""
    load: Load
    options: list[OptionReport]
    runs_per_candidate: int
    assumptions: list[str]
    warnings: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> TuneReport:
        nested = {
            "files": [FileReport._of(item) for item in data["files"]],
            "baseline": Candidate._of(data["baseline"]),
            "recommended": Recommended._of(data["recommended"]),
            "candidates": [Candidate._of(item) for item in data["candidates"]],
            "limit": Limit._of(data["limit"]),
            "drop_in": DropInReport._of(data["drop_in"]),
            "load": Load._of(data["load"]),
            "options": [OptionReport._of(item) for item in data["options"]],
        }
        return cls(**_but_schema(data) | base | nested)

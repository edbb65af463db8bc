"""The report of ``vramwise tune``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport


@dataclass(frozen=True)
class FileReport:
    file: str
    device: int
    events: int
    allocs: int
    allocs_exact: int
    exact: bool

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FileReport:
        return cls(
            file=data["file"],
            device=data["device"],
            events=data["events"],
            allocs=data["allocs"],
            allocs_exact=data["allocs_exact"],
            exact=data["exact"],
        )


@dataclass(frozen=True)
class DeviceCalls:
    malloc: int
    free: int
    map: int
    unmap: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DeviceCalls:
        return cls(
            malloc=data["malloc"],
            free=data["free"],
            map=data["map"],
            unmap=data["unmap"],
        )


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
        return cls(
            conf=data["conf"],
            peak_reserved_bytes=data["peak_reserved_bytes"],
            peak_reserved_bytes_range=tuple(data["peak_reserved_bytes_range"]),
            peak_allocated_bytes=data["peak_allocated_bytes"],
            oom_rate=data["oom_rate"],
            largest_free_block_bytes=data["largest_free_block_bytes"],
            inactive_split_bytes=data["inactive_split_bytes"],
            num_alloc_retries=data["num_alloc_retries"],
            device_calls=DeviceCalls._of(data["device_calls"]),
            device_call_ms=data["device_call_ms"],
            smallest_capacity_bytes=data["smallest_capacity_bytes"],
            dominated=data["dominated"],
            env=data["env"],
            env_alternatives=data["env_alternatives"],
            changes_anything=data["changes_anything"],
        )


@dataclass(frozen=True)
class Limit:
    peak_live_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Limit:
        return cls(
            peak_live_bytes=data["peak_live_bytes"],
        )


@dataclass(frozen=True)
class Load:
    kind: str
    why: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Load:
        return cls(
            kind=data["kind"],
            why=data["why"],
        )


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
        return cls(
            option=data["option"],
            tried=data["tried"],
            best=data["best"],
            best_change_bytes=data["best_change_bytes"],
            worst_change_bytes=data["worst_change_bytes"],
            text=data["text"],
        )


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
        return cls(
            conf=data["conf"],
            peak_reserved_bytes=data["peak_reserved_bytes"],
            peak_reserved_bytes_range=tuple(data["peak_reserved_bytes_range"]),
            peak_allocated_bytes=data["peak_allocated_bytes"],
            oom_rate=data["oom_rate"],
            largest_free_block_bytes=data["largest_free_block_bytes"],
            inactive_split_bytes=data["inactive_split_bytes"],
            num_alloc_retries=data["num_alloc_retries"],
            device_calls=DeviceCalls._of(data["device_calls"]),
            device_call_ms=data["device_call_ms"],
            smallest_capacity_bytes=data["smallest_capacity_bytes"],
            dominated=data["dominated"],
        )


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
    load: Load
    options: list[OptionReport]
    runs_per_candidate: int
    assumptions: list[str]
    warnings: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> TuneReport:
        return cls(
            files=[FileReport._of(item) for item in data["files"]],
            torch_version=data["torch_version"],
            capacity_bytes=data["capacity_bytes"],
            baseline=Candidate._of(data["baseline"]),
            recommended=Recommended._of(data["recommended"]),
            gain_bytes=data["gain_bytes"],
            gain_percent=data["gain_percent"],
            candidates=[Candidate._of(item) for item in data["candidates"]],
            limit=Limit._of(data["limit"]),
            load=Load._of(data["load"]),
            options=[OptionReport._of(item) for item in data["options"]],
            runs_per_candidate=data["runs_per_candidate"],
            assumptions=data["assumptions"],
            warnings=data["warnings"],
            **base,
        )

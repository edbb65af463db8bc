"""The report of ``vramwise replay``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class SettingsReport:
    recorded: str
    replayed: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> SettingsReport:
        return cls(**data)


@dataclass(frozen=True)
class DivergenceReport:
    event: int
    expected: str
    got: str
    why: str
    context: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DivergenceReport:
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
class OomReport:
    event: int
    size_bytes: int
    device_request_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None

    @classmethod
    def _of(cls, data: dict[str, Any]) -> OomReport:
        return cls(**data)


@dataclass(frozen=True)
class DropInOom:
    event: int
    size_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DropInOom:
        return cls(**data)


@dataclass(frozen=True)
class DropInCalls:
    create: int
    release: int
    map: int
    unmap: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DropInCalls:
        return cls(**data)


@dataclass(frozen=True)
class Verify:
    allocs: int
    allocs_exact: int
    segment_allocs: int
    segment_allocs_exact: int
    segment_frees: int
    segment_frees_exact: int
    segment_maps: int
    segment_maps_exact: int
    segment_unmaps: int
    segment_unmaps_exact: int
    ooms: int
    ooms_exact: int
    final_state_exact: bool
    final_state_difference: str | None
    first_divergence: DivergenceReport | None
    impossible: str | None
    """Why the file cannot come from PyTorch's allocator."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Verify:
        nested = {
            "first_divergence": None if data["first_divergence"] is None else DivergenceReport._of(data["first_divergence"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class DropInReport:
    """What it would have held."""

    peak_held_bytes: int
    """Most physical memory held at one time, bytes."""
    peak_requested_bytes: int
    """Most memory asked for at one time, bytes: what any allocator needs."""
    ratio: float | None
    """Held ÷ requested."""
    private_peaks_bytes: int
    """The peaks of private pools added up, bytes."""
    oom: list[DropInOom]
    """Requests without memory."""
    device_calls: DropInCalls

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DropInReport:
        nested = {
            "oom": [DropInOom._of(item) for item in data["oom"]],
            "device_calls": DropInCalls._of(data["device_calls"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class ReplayReport(BaseReport):
    """What ``vramwise replay`` reports; ``print`` shows it as the program does."""

    file: str
    device: int
    torch_version_guess: str | None
    torch_version: str
    """The version whose rules were applied."""
    events: int
    recorded_allocator: str
    """``pytorch``, or ``vramwise`` where that was in its place: then its blocks are not compared, and ``verify`` is ``null``."""
    settings: SettingsReport
    capacity_bytes: int | None
    verify: Verify | None
    stats: dict[str, int]
    peak_reserved_bytes_range: tuple[int, int]
    device_calls: DeviceCalls
    oom: list[OomReport]
    pools: int
    drop_in: DropInReport | None
    """The same program under vramwise's allocator, where that was asked."""
    assumptions: list[str]
    warnings: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> ReplayReport:
        nested = {
            "settings": SettingsReport._of(data["settings"]),
            "verify": None if data["verify"] is None else Verify._of(data["verify"]),
            "peak_reserved_bytes_range": tuple(data["peak_reserved_bytes_range"]),
            "device_calls": DeviceCalls._of(data["device_calls"]),
            "oom": [OomReport._of(item) for item in data["oom"]],
            "drop_in": None if data["drop_in"] is None else DropInReport._of(data["drop_in"]),
        }
        return cls(**_but_schema(data) | base | nested)

"""The report of ``vramwise replay``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport


@dataclass(frozen=True)
class SettingsReport:
    recorded: str
    replayed: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> SettingsReport:
        return cls(
            recorded=data["recorded"],
            replayed=data["replayed"],
        )


@dataclass(frozen=True)
class DivergenceReport:
    event: int
    expected: str
    got: str
    why: str
    context: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DivergenceReport:
        return cls(
            event=data["event"],
            expected=data["expected"],
            got=data["got"],
            why=data["why"],
            context=data["context"],
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
class OomReport:
    event: int
    size_bytes: int
    device_request_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None

    @classmethod
    def _of(cls, data: dict[str, Any]) -> OomReport:
        return cls(
            event=data["event"],
            size_bytes=data["size_bytes"],
            device_request_bytes=data["device_request_bytes"],
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
        )


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
        return cls(
            allocs=data["allocs"],
            allocs_exact=data["allocs_exact"],
            segment_allocs=data["segment_allocs"],
            segment_allocs_exact=data["segment_allocs_exact"],
            segment_frees=data["segment_frees"],
            segment_frees_exact=data["segment_frees_exact"],
            segment_maps=data["segment_maps"],
            segment_maps_exact=data["segment_maps_exact"],
            segment_unmaps=data["segment_unmaps"],
            segment_unmaps_exact=data["segment_unmaps_exact"],
            ooms=data["ooms"],
            ooms_exact=data["ooms_exact"],
            final_state_exact=data["final_state_exact"],
            final_state_difference=data["final_state_difference"],
            first_divergence=None
            if data["first_divergence"] is None
            else DivergenceReport._of(data["first_divergence"]),
            impossible=data["impossible"],
        )


@dataclass(frozen=True, repr=False)
class ReplayReport(BaseReport):
    """What ``vramwise replay`` reports; ``print`` shows it as the program does."""

    file: str
    device: int
    torch_version_guess: str | None
    torch_version: str
    """The version whose rules were applied."""
    events: int
    settings: SettingsReport
    capacity_bytes: int | None
    verify: Verify | None
    stats: dict[str, int]
    peak_reserved_bytes_range: tuple[int, int]
    device_calls: DeviceCalls
    oom: list[OomReport]
    pools: int
    assumptions: list[str]
    warnings: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> ReplayReport:
        return cls(
            file=data["file"],
            device=data["device"],
            torch_version_guess=data["torch_version_guess"],
            torch_version=data["torch_version"],
            events=data["events"],
            settings=SettingsReport._of(data["settings"]),
            capacity_bytes=data["capacity_bytes"],
            verify=None if data["verify"] is None else Verify._of(data["verify"]),
            stats=data["stats"],
            peak_reserved_bytes_range=tuple(data["peak_reserved_bytes_range"]),
            device_calls=DeviceCalls._of(data["device_calls"]),
            oom=[OomReport._of(item) for item in data["oom"]],
            pools=data["pools"],
            assumptions=data["assumptions"],
            warnings=data["warnings"],
            **base,
        )

"""The report of ``vramwise diff``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class FileReport:
    file: str
    torch_version: str
    settings: str | None
    """The settings string; ``null`` where the file does not say."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FileReport:
        return cls(**data)


@dataclass(frozen=True)
class Bytes:
    """A figure in bytes."""

    bytes: int
    exact: bool
    """Whether it is exact; else a lower bound."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Bytes:
        return cls(**data)


@dataclass(frozen=True)
class FragmentationReport:
    """Reserved memory that nothing used when most was reserved."""

    reserved_bytes: int
    unused_bytes: int
    percent: float
    """Percent of the reserved bytes."""
    exact: bool
    """Whether it is exact; else an upper bound."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FragmentationReport:
        return cls(**data)


@dataclass(frozen=True)
class SampledStacks:
    """Which steps have stacks."""

    steps: int
    """Steps in the history that allocate."""
    steps_with_stacks: list[int]
    """Those of them with stacks, as the recorder's marks number them from 0."""
    requested_bytes: int
    """Bytes requested in the history."""
    requested_with_stack_bytes: int
    """Bytes of those requests that have a stack."""
    note: str
    """The same as a sentence."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> SampledStacks:
        return cls(**data)


@dataclass(frozen=True)
class RowReport:
    name: str
    moved_from: str | None
    """Its name in A, where the line moved."""
    change: str
    """``new``, ``vanished``, ``more`` or ``less``."""
    a_bytes: int
    b_bytes: int
    delta_bytes: int
    a_blocks: int
    b_blocks: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> RowReport:
        return cls(**data)


@dataclass(frozen=True)
class PeakBytes:
    """The four peaks."""

    reserved: Bytes
    active: Bytes
    allocated: Bytes
    requested: Bytes

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PeakBytes:
        nested = {
            "reserved": Bytes._of(data["reserved"]),
            "active": Bytes._of(data["active"]),
            "allocated": Bytes._of(data["allocated"]),
            "requested": Bytes._of(data["requested"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class SideReport:
    events: int
    evidence: str
    """``replay``, ``history`` or ``state``."""
    evidence_reason: str | None
    """Why there is no replay."""
    peaks: PeakBytes | None
    fragmentation: FragmentationReport
    allocated_bytes: int
    """Allocated bytes at the moment of ``groups``."""
    event: int | None
    rounding_bytes: int
    oom: int
    has_stacks: bool
    sampled_stacks: SampledStacks | None
    """Where only some steps were recorded with stacks, which; ``null`` where all are alike."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> SideReport:
        nested = {
            "peaks": None if data["peaks"] is None else PeakBytes._of(data["peaks"]),
            "fragmentation": FragmentationReport._of(data["fragmentation"]),
            "sampled_stacks": None if data["sampled_stacks"] is None else SampledStacks._of(data["sampled_stacks"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class DeviceReport:
    device: int
    a: SideReport | None
    """``null`` where this file has no such device."""
    b: SideReport | None
    groups_total: int
    """Holders at the two peaks of allocated memory: how many there are together."""
    groups_new: int
    groups_vanished: int
    groups_unchanged: int
    """How many hold as many bytes as before."""
    groups: list[RowReport]
    """Those that hold more or less, the largest change first; the first ``--top`` of them."""
    rest_delta_bytes: int
    """Change in bytes of those that ``groups`` leaves out."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> DeviceReport:
        nested = {
            "a": None if data["a"] is None else SideReport._of(data["a"]),
            "b": None if data["b"] is None else SideReport._of(data["b"]),
            "groups": [RowReport._of(item) for item in data["groups"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class DiffReport(BaseReport):
    """What ``vramwise diff`` reports; ``print`` shows it as the program does."""

    a: FileReport
    b: FileReport
    by: str
    """How the holders are grouped."""
    devices: list[DeviceReport]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> DiffReport:
        nested = {
            "a": FileReport._of(data["a"]),
            "b": FileReport._of(data["b"]),
            "devices": [DeviceReport._of(item) for item in data["devices"]],
        }
        return cls(**_but_schema(data) | base | nested)

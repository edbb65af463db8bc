"""The report of ``vramwise inspect``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class After:
    name: str
    times: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> After:
        return cls(**data)


@dataclass(frozen=True)
class Oom:
    event: int
    size_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Oom:
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
class GroupReport:
    name: str
    bytes: int
    requested_bytes: int
    blocks: int
    percent: float

    @classmethod
    def _of(cls, data: dict[str, Any]) -> GroupReport:
        return cls(**data)


@dataclass(frozen=True)
class RuleReport:
    rule: str
    bytes: int
    blocks: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> RuleReport:
        return cls(**data)


@dataclass(frozen=True)
class PoolReport:
    pool_id: tuple[int, int]
    small: bool
    stream: int
    segments: int
    reserved_bytes: int
    allocated_bytes: int
    pending_free_bytes: int
    split_bytes: int
    cached_bytes: int
    largest_block_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PoolReport:
        nested = {
            "pool_id": tuple(data["pool_id"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class PinReport:
    name: str
    segments: int
    segment_bytes: int
    free_bytes: int
    held_bytes: int
    blocks: int
    held_by_others_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PinReport:
        return cls(**data)


@dataclass(frozen=True)
class ColumnReport:
    first_event: int
    allocated_bytes: int
    reserved_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> ColumnReport:
        return cls(**data)


@dataclass(frozen=True)
class Warned:
    code: str
    message: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Warned:
        return cls(**data)


@dataclass(frozen=True)
class PeakReport:
    bytes: int
    exact: bool
    """Whether it is exact; else a lower bound."""
    event: int | None
    since_start_us: int | None
    within: list[str]
    """Annotations that were open, the outermost first."""
    after: After | None
    """The annotation that had ended last, with how often it had."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PeakReport:
        nested = {
            "after": None if data["after"] is None else After._of(data["after"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class CategoryReport:
    category: str
    bytes: int
    blocks: int
    percent: float
    rules: list[RuleReport]
    """By the rule that decided."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> CategoryReport:
        nested = {
            "rules": [RuleReport._of(item) for item in data["rules"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class FreeReport:
    split_bytes: int
    """Free bytes in segments that something uses."""
    cached_bytes: int
    """Bytes of segments that nothing uses."""
    largest_block_bytes: int
    private_pool_bytes: int
    pools: list[PoolReport]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> FreeReport:
        nested = {
            "pools": [PoolReport._of(item) for item in data["pools"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class PinnedReport:
    at: str
    """``peak``, ``event``, ``out of memory`` or ``end``."""
    event: int | None
    since_start_us: int | None
    within: list[str]
    """Annotations that were open, the outermost first."""
    after: After | None
    """The annotation that had ended last, with how often it had."""
    free_bytes: int
    pins_total: int
    pins: list[PinReport]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PinnedReport:
        nested = {
            "after": None if data["after"] is None else After._of(data["after"]),
            "pins": [PinReport._of(item) for item in data["pins"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class PeaksReport:
    allocated: PeakReport
    reserved: PeakReport
    active: PeakReport
    requested: PeakReport
    impossible: str | None
    """Why they cannot all be right, where the file contradicts itself."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PeaksReport:
        nested = {
            "allocated": PeakReport._of(data["allocated"]),
            "reserved": PeakReport._of(data["reserved"]),
            "active": PeakReport._of(data["active"]),
            "requested": PeakReport._of(data["requested"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class MemoryReport:
    at: str
    """``peak``, ``end`` or ``event``."""
    event: int | None
    since_start_us: int | None
    within: list[str]
    """Annotations that were open, the outermost first."""
    after: After | None
    """The annotation that had ended last, with how often it had."""
    exact: bool
    reserved_bytes: int
    allocated_bytes: int
    allocated_blocks: int
    requested_bytes: int
    rounding_bytes: int
    pending_free_bytes: int
    pending_free_blocks: int
    without_stack_bytes: int
    without_stack_blocks: int
    before_recording_bytes: int
    before_recording_blocks: int
    by: str
    groups_total: int
    """Groups there are; ``groups`` has the first ``--top`` of them."""
    groups: list[GroupReport]
    categories: list[CategoryReport]
    """What the allocated blocks are for, most bytes first; all of them."""
    free: FreeReport | None

    @classmethod
    def _of(cls, data: dict[str, Any]) -> MemoryReport:
        nested = {
            "after": None if data["after"] is None else After._of(data["after"]),
            "groups": [GroupReport._of(item) for item in data["groups"]],
            "categories": [CategoryReport._of(item) for item in data["categories"]],
            "free": None if data["free"] is None else FreeReport._of(data["free"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Device:
    device: int
    events: int
    evidence: str
    """``replay``, ``history`` or ``state``."""
    evidence_reason: str | None
    """Why there is no replay."""
    peaks: PeaksReport | None
    oom: list[Oom]
    has_stacks: bool
    sampled_stacks: SampledStacks | None
    """Where only some steps were recorded with stacks, which; ``null`` where all are alike."""
    memory: MemoryReport
    pinned: list[PinnedReport]
    timeline: list[ColumnReport]
    assumptions: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Device:
        nested = {
            "peaks": None if data["peaks"] is None else PeaksReport._of(data["peaks"]),
            "oom": [Oom._of(item) for item in data["oom"]],
            "sampled_stacks": None if data["sampled_stacks"] is None else SampledStacks._of(data["sampled_stacks"]),
            "memory": MemoryReport._of(data["memory"]),
            "pinned": [PinnedReport._of(item) for item in data["pinned"]],
            "timeline": [ColumnReport._of(item) for item in data["timeline"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class InspectReport(BaseReport):
    """What ``vramwise inspect`` reports; ``print`` shows it as the program does."""

    file: str
    torch_version: str
    """The version whose rules were applied."""
    devices: list[Device]
    warnings: list[Warned]

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> InspectReport:
        nested = {
            "devices": [Device._of(item) for item in data["devices"]],
            "warnings": [Warned._of(item) for item in data["warnings"]],
        }
        return cls(**_but_schema(data) | base | nested)

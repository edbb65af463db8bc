"""The report of ``vramwise inspect``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport


@dataclass(frozen=True)
class After:
    name: str
    times: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> After:
        return cls(
            name=data["name"],
            times=data["times"],
        )


@dataclass(frozen=True)
class Oom:
    event: int
    size_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Oom:
        return cls(
            event=data["event"],
            size_bytes=data["size_bytes"],
        )


@dataclass(frozen=True)
class GroupReport:
    name: str
    bytes: int
    requested_bytes: int
    blocks: int
    percent: float

    @classmethod
    def _of(cls, data: dict[str, Any]) -> GroupReport:
        return cls(
            name=data["name"],
            bytes=data["bytes"],
            requested_bytes=data["requested_bytes"],
            blocks=data["blocks"],
            percent=data["percent"],
        )


@dataclass(frozen=True)
class RuleReport:
    rule: str
    bytes: int
    blocks: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> RuleReport:
        return cls(
            rule=data["rule"],
            bytes=data["bytes"],
            blocks=data["blocks"],
        )


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
        return cls(
            pool_id=tuple(data["pool_id"]),
            small=data["small"],
            stream=data["stream"],
            segments=data["segments"],
            reserved_bytes=data["reserved_bytes"],
            allocated_bytes=data["allocated_bytes"],
            pending_free_bytes=data["pending_free_bytes"],
            split_bytes=data["split_bytes"],
            cached_bytes=data["cached_bytes"],
            largest_block_bytes=data["largest_block_bytes"],
        )


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
        return cls(
            name=data["name"],
            segments=data["segments"],
            segment_bytes=data["segment_bytes"],
            free_bytes=data["free_bytes"],
            held_bytes=data["held_bytes"],
            blocks=data["blocks"],
            held_by_others_bytes=data["held_by_others_bytes"],
        )


@dataclass(frozen=True)
class ColumnReport:
    first_event: int
    allocated_bytes: int
    reserved_bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> ColumnReport:
        return cls(
            first_event=data["first_event"],
            allocated_bytes=data["allocated_bytes"],
            reserved_bytes=data["reserved_bytes"],
        )


@dataclass(frozen=True)
class Warned:
    code: str
    message: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Warned:
        return cls(
            code=data["code"],
            message=data["message"],
        )


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
        return cls(
            bytes=data["bytes"],
            exact=data["exact"],
            event=data["event"],
            since_start_us=data["since_start_us"],
            within=data["within"],
            after=None if data["after"] is None else After._of(data["after"]),
        )


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
        return cls(
            category=data["category"],
            bytes=data["bytes"],
            blocks=data["blocks"],
            percent=data["percent"],
            rules=[RuleReport._of(item) for item in data["rules"]],
        )


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
        return cls(
            split_bytes=data["split_bytes"],
            cached_bytes=data["cached_bytes"],
            largest_block_bytes=data["largest_block_bytes"],
            private_pool_bytes=data["private_pool_bytes"],
            pools=[PoolReport._of(item) for item in data["pools"]],
        )


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
        return cls(
            at=data["at"],
            event=data["event"],
            since_start_us=data["since_start_us"],
            within=data["within"],
            after=None if data["after"] is None else After._of(data["after"]),
            free_bytes=data["free_bytes"],
            pins_total=data["pins_total"],
            pins=[PinReport._of(item) for item in data["pins"]],
        )


@dataclass(frozen=True)
class PeaksReport:
    allocated: PeakReport
    reserved: PeakReport
    active: PeakReport
    requested: PeakReport

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PeaksReport:
        return cls(
            allocated=PeakReport._of(data["allocated"]),
            reserved=PeakReport._of(data["reserved"]),
            active=PeakReport._of(data["active"]),
            requested=PeakReport._of(data["requested"]),
        )


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
        return cls(
            at=data["at"],
            event=data["event"],
            since_start_us=data["since_start_us"],
            within=data["within"],
            after=None if data["after"] is None else After._of(data["after"]),
            exact=data["exact"],
            reserved_bytes=data["reserved_bytes"],
            allocated_bytes=data["allocated_bytes"],
            allocated_blocks=data["allocated_blocks"],
            requested_bytes=data["requested_bytes"],
            rounding_bytes=data["rounding_bytes"],
            pending_free_bytes=data["pending_free_bytes"],
            pending_free_blocks=data["pending_free_blocks"],
            without_stack_bytes=data["without_stack_bytes"],
            without_stack_blocks=data["without_stack_blocks"],
            before_recording_bytes=data["before_recording_bytes"],
            before_recording_blocks=data["before_recording_blocks"],
            by=data["by"],
            groups_total=data["groups_total"],
            groups=[GroupReport._of(item) for item in data["groups"]],
            categories=[CategoryReport._of(item) for item in data["categories"]],
            free=None if data["free"] is None else FreeReport._of(data["free"]),
        )


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
    memory: MemoryReport
    pinned: list[PinnedReport]
    timeline: list[ColumnReport]
    assumptions: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Device:
        return cls(
            device=data["device"],
            events=data["events"],
            evidence=data["evidence"],
            evidence_reason=data["evidence_reason"],
            peaks=None if data["peaks"] is None else PeaksReport._of(data["peaks"]),
            oom=[Oom._of(item) for item in data["oom"]],
            has_stacks=data["has_stacks"],
            memory=MemoryReport._of(data["memory"]),
            pinned=[PinnedReport._of(item) for item in data["pinned"]],
            timeline=[ColumnReport._of(item) for item in data["timeline"]],
            assumptions=data["assumptions"],
        )


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
        return cls(
            file=data["file"],
            torch_version=data["torch_version"],
            devices=[Device._of(item) for item in data["devices"]],
            warnings=[Warned._of(item) for item in data["warnings"]],
            **base,
        )

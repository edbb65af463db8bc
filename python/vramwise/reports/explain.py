"""The report of ``vramwise explain``, written by ``cargo xtask report-types``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._base import BaseReport, _but_schema


@dataclass(frozen=True)
class Process:
    pid: int | None
    bytes: int | None

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Process:
        return cls(**data)


@dataclass(frozen=True)
class TrialReport:
    """The replay behind a piece of advice."""

    request_passes: bool
    later_failures: int
    """Requests that fail later in the recorded history."""
    peak_reserved_bytes: int
    limit_bytes: int | None
    conf: str
    address_orders: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> TrialReport:
        return cls(**data)


@dataclass(frozen=True)
class Fact:
    name: str
    text: str
    source: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Fact:
        return cls(**data)


@dataclass(frozen=True)
class Contributing:
    cause: str
    bytes: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Contributing:
        return cls(**data)


@dataclass(frozen=True)
class HolderReport:
    place: str
    bytes: int
    blocks: int

    @classmethod
    def _of(cls, data: dict[str, Any]) -> HolderReport:
        return cls(**data)


@dataclass(frozen=True)
class PinBlockReport:
    addr: int
    size_bytes: int
    place: str
    pending_free: bool

    @classmethod
    def _of(cls, data: dict[str, Any]) -> PinBlockReport:
        return cls(**data)


@dataclass(frozen=True)
class Remark:
    code: str
    offset: int
    text: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Remark:
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
class Unreadable:
    """A file that cannot be used, and why."""

    file: str
    reason: str

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Unreadable:
        return cls(**data)


@dataclass(frozen=True)
class Numbers:
    tried_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    reserved_unallocated_bytes: int | None
    private_pool_bytes: int | None
    process_in_use_bytes: int | None
    allowed_bytes: int | None
    other_bytes: int | None
    gpu: int | None
    processes: list[Process]
    impossible: list[str]
    """Labels whose printed number was impossible and is null for that reason."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Numbers:
        nested = {
            "processes": [Process._of(item) for item in data["processes"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Advice:
    action: str
    evidence: str
    proved: bool
    """Whether a replay proves it."""
    trial: TrialReport | None

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Advice:
        nested = {
            "trial": None if data["trial"] is None else TrialReport._of(data["trial"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Pinned:
    addr: int
    size_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stream: int
    pool: str
    small: bool
    blocks: list[PinBlockReport]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Pinned:
        nested = {
            "blocks": [PinBlockReport._of(item) for item in data["blocks"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Settings:
    file: str
    line: int
    name: str
    text: str
    in_force: bool
    remarks: list[Remark]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Settings:
        nested = {
            "remarks": [Remark._of(item) for item in data["remarks"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Verified:
    """A snapshot's device, whether a request failed or not."""

    file: str
    device: int
    events: int
    exact: bool
    """Whether a replay reproduced the whole recording."""
    not_exact_reason: str | None
    conf: str
    peak_reserved_bytes: int | None
    peak_reserved_under_capacity_bytes: int | None
    """Most bytes held in a replay under ``--capacity``, where nothing fails under it."""
    recorded_failures: int
    fails: bool | None
    """Whether a request fails; ``null`` where ``--capacity`` asks and no replay can tell."""
    sampled_stacks: SampledStacks | None
    """Where only some steps were recorded with stacks, which; ``null`` where all are alike."""
    assumptions: list[str]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Verified:
        nested = {
            "sampled_stacks": None if data["sampled_stacks"] is None else SampledStacks._of(data["sampled_stacks"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Failed:
    """What is known of a failed request beside the figures that a text has."""

    event: int
    time_us: int | None
    recorded: bool
    """Whether it failed in the recording, or only under the capacity that was asked about."""
    place: str
    asked_bytes: int
    live_requested_bytes: int
    pending_free_bytes: int
    free_own_bytes: int
    largest_free_block_bytes: int
    free_other_streams_bytes: int
    free_other_pools_bytes: int
    limit_low_bytes: int
    limit_high_bytes: int
    limit_given: bool
    contributing: list[Contributing]
    holders: list[HolderReport]
    pinned: list[Pinned]

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Failed:
        nested = {
            "contributing": [Contributing._of(item) for item in data["contributing"]],
            "holders": [HolderReport._of(item) for item in data["holders"]],
            "pinned": [Pinned._of(item) for item in data["pinned"]],
        }
        return cls(**data | nested)


@dataclass(frozen=True)
class Event:
    """One out-of-memory text."""

    kind: str
    file: str | None
    line: int | None
    rank: int | None
    times: int
    printed_by: str | None
    """The releases of PyTorch that print such a text."""
    truncated: bool
    numbers: Numbers
    cause: str
    cause_text: str
    confidence: float
    why: list[str]
    advice: list[Advice]
    facts: list[Fact]
    time_us: int | None
    """When it happened: microseconds since 1970 (of local time, where a log names no zone)."""
    replay: Failed | None
    """What the replay of a snapshot shows; null for a text."""

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Event:
        nested = {
            "numbers": Numbers._of(data["numbers"]),
            "advice": [Advice._of(item) for item in data["advice"]],
            "facts": [Fact._of(item) for item in data["facts"]],
            "replay": None if data["replay"] is None else Failed._of(data["replay"]),
        }
        return cls(**data | nested)


@dataclass(frozen=True, repr=False)
class ExplainReport(BaseReport):
    """One out-of-memory text."""

    kind: str
    file: str | None
    line: int | None
    rank: int | None
    times: int
    printed_by: str | None
    """The releases of PyTorch that print such a text."""
    truncated: bool
    numbers: Numbers
    cause: str
    cause_text: str
    confidence: float
    why: list[str]
    advice: list[Advice]
    facts: list[Fact]
    time_us: int | None
    """When it happened: microseconds since 1970 (of local time, where a log names no zone)."""
    replay: Failed | None
    """What the replay of a snapshot shows; null for a text."""
    events: list[Event]
    unlisted: int
    """Errors of logs that are not in ``events``, whose list was full."""
    settings: list[Settings]
    torch_version: str | None
    snapshots: list[Verified]
    """The devices of the snapshots among the files."""
    first_in_time: int | None
    """Index into ``events`` of the one that was first in time, where that can be told."""
    unreadable: list[Unreadable]
    """The files that cannot be used; always empty where one was named."""

    @classmethod
    def _of(cls, data: dict[str, Any], **base: Any) -> ExplainReport:
        nested = {
            "numbers": Numbers._of(data["numbers"]),
            "advice": [Advice._of(item) for item in data["advice"]],
            "facts": [Fact._of(item) for item in data["facts"]],
            "replay": None if data["replay"] is None else Failed._of(data["replay"]),
            "events": [Event._of(item) for item in data["events"]],
            "settings": [Settings._of(item) for item in data["settings"]],
            "snapshots": [Verified._of(item) for item in data["snapshots"]],
            "unreadable": [Unreadable._of(item) for item in data["unreadable"]],
        }
        return cls(**_but_schema(data) | base | nested)

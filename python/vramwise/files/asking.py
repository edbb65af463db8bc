"""Runs a command of the program on snapshots in memory, and makes its report an object."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ..errors import VramwiseWarning
from ..reports import BaseReport

if TYPE_CHECKING:
    from .snapshot import Snapshot

Answer = tuple[str, str, list[str], bool]
"""JSON, text, warnings, whether it is a finding."""

Report = TypeVar("Report", bound=BaseReport)


def ask(command: str, options: list[str], names: list[str], snapshots: Sequence[Snapshot]) -> Answer:
    """Runs a command of the program on snapshots, which it meets in this order."""
    from .. import _native

    recordings = [snapshot._recording for snapshot in snapshots]
    return _native.report([command, *options, "--", *names], recordings)


def as_options(**options: object) -> list[str]:
    """Options as the program takes them; those that are ``None`` are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


def typed(report: type[Report], answer: Answer) -> Report:
    """The report as an object; what the command would have warned of is a warning at the line that asked."""
    text, shown, remarks, is_finding = answer
    for remark in remarks:
        warnings.warn(remark, VramwiseWarning, stacklevel=3)
    return report._of(json.loads(text), text=shown, is_finding=is_finding, _json=text)

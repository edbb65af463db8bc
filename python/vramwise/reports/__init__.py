"""What reports look like in Python.

Each report has the fields of the JSON report of the same command (``vramwise replay --json``), under the same
names. Sizes are bytes, times microseconds. Within one release series fields are only added.
"""

from __future__ import annotations

from ._base import BaseReport
from .diff import DiffReport
from .explain import ExplainReport
from .inspect import InspectReport
from .leaks import LeaksReport
from .replay import ReplayReport
from .tune import TuneReport
from .validate import ValidateReport

__all__ = [
    "BaseReport",
    "DiffReport",
    "ExplainReport",
    "InspectReport",
    "LeaksReport",
    "ReplayReport",
    "TuneReport",
    "ValidateReport",
]

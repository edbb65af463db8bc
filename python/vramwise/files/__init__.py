"""Snapshots that PyTorch wrote, read and asked; needs neither torch nor a GPU.

``sources`` reads them, ``snapshot`` has what can be asked, ``asking`` runs the program's commands on them in memory,
``tables`` are their events for other libraries.
"""

from __future__ import annotations

from .snapshot import Size, Snapshot, StrPath
from .sources import Readable, explain_text, read
from .spans import Span
from .tables import Table

__all__ = ["Readable", "Size", "Snapshot", "Span", "StrPath", "Table", "explain_text", "read"]

"""PyTorch's counters, out of the form in which asking for them costs least."""

from __future__ import annotations

from typing import Any


def counter(stats: dict[str, Any], name: str) -> int:
    """One counter out of ``memory_stats_as_nested_dict()``, 0 where it has none.

    >>> counter({"reserved_bytes": {"all": {"current": 7}}}, "reserved_bytes.all.current")
    7
    """
    found: Any = stats
    for part in name.split("."):
        found = found.get(part, {})
    return int(found or 0)

"""Says now and then what memory is in use.

``monitor`` says when, ``reading`` is what is read, ``writers`` are where it goes.
"""

from __future__ import annotations

from .monitor import MemoryMonitor, log_memory
from .reading import MemoryReading, read_memory
from .writers import JsonLines, Lines, PrometheusTextfile, TensorBoard

__all__ = [
    "JsonLines",
    "Lines",
    "MemoryMonitor",
    "MemoryReading",
    "PrometheusTextfile",
    "TensorBoard",
    "log_memory",
    "read_memory",
]

"""vramwise's own GPU allocator in the place of PyTorch's: the same training in less memory.

``install_allocator()`` before the first CUDA call is all. Where it cannot be installed, PyTorch's own allocator stays,
and one line on standard error says why.
"""

from __future__ import annotations

from ._engine import DriverCalls
from ._install import AllocatorStatus, allocator_status, driver_calls, install_allocator, movable_bytes, set_settings

__all__ = [
    "AllocatorStatus",
    "DriverCalls",
    "allocator_status",
    "driver_calls",
    "install_allocator",
    "movable_bytes",
    "set_settings",
]

"""The allocator's settings while a program runs: ``current`` asks and sets them, ``schedule`` says when.

``strings`` takes strings of settings apart and puts them together, purely.
"""

from __future__ import annotations

from .current import allocator_settings, check_allocator_settings, set_allocator_settings
from .schedule import SettingsSchedule

__all__ = ["SettingsSchedule", "allocator_settings", "check_allocator_settings", "set_allocator_settings"]

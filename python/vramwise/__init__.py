"""See, rehearse, tune and reclaim the GPU memory of PyTorch programs.

Importing this package imports neither torch nor anything else that is slow; what needs torch imports it
when it is called. Each name below is loaded from its module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocator import allocator_status as allocator_status
    from .allocator import install_allocator as install_allocator
    from .allocator import set_settings as set_settings
    from .available import Headroom as Headroom
    from .available import headroom as headroom
    from .batch_size import find_executable_batch_size as find_executable_batch_size
    from .errors import VramwiseError as VramwiseError
    from .files import Snapshot as Snapshot
    from .files import explain_text as explain_text
    from .files import read as read
    from .microbatch import MicroBatcher as MicroBatcher
    from .microbatch import oom_retry as oom_retry
    from .monitor import log_memory as log_memory
    from .oom import is_oom_error as is_oom_error
    from .recorder import Recorder as Recorder
    from .recorder import record as record
    from .recorder import start_recording as start_recording
    from .settings import SettingsSchedule as SettingsSchedule
    from .settings import set_allocator_settings as set_allocator_settings

__version__ = "0.1.0"

_HOME = {
    "Headroom": "available",
    "MicroBatcher": "microbatch",
    "Recorder": "recorder",
    "SettingsSchedule": "settings",
    "Snapshot": "files",
    "VramwiseError": "errors",
    "allocator_status": "allocator",
    "explain_text": "files",
    "find_executable_batch_size": "batch_size",
    "headroom": "available",
    "install_allocator": "allocator",
    "is_oom_error": "oom",
    "log_memory": "monitor",
    "oom_retry": "microbatch",
    "read": "files",
    "record": "recorder",
    "set_allocator_settings": "settings",
    "set_settings": "allocator",
    "start_recording": "recorder",
}

__all__ = sorted([*_HOME, "__version__"])


# Modules that are there whether a name of theirs was used before or not: ``vramwise.errors.SettingsError``.
_MODULES = {
    "allocator", "batch_size", "callbacks", "errors", "files", "microbatch", "monitor", "oom", "recorder", "reports",
    "settings",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])

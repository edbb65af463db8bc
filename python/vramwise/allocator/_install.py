"""Installing the allocator into the PyTorch of this process."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ..errors import NotAvailableError, SettingsError, VramwiseError
from . import _report, _shim
from ._engine import ALL_DEVICES, DriverCalls, Engine

_MOST_DEVICES = 128  # that PyTorch can number

# Settings that PyTorch knows nothing of.
_OWN_KEYS = (
    "limit",
    "slack",
    "handle_cap",
    "handle_share",
    "request_share",
    "fine_share",
    "varied",
    "aligned",
    "small_below",
)

Settings = str | Mapping[int | str, str]


@dataclass(frozen=True)
class AllocatorStatus:
    """Whether vramwise's allocator is in place.

    Attributes:
        installed: it serves this process's CUDA memory.
        reason: why it does not; empty if it does.
        torch: the version of PyTorch that was looked at, or "".
        engine: the engine's library.
        shim: what connects it to this PyTorch.
        settings: those in force, by device: -1 has what holds for all.
    """

    installed: bool = False
    reason: str = "install_allocator() has not been called"
    torch: str = ""
    engine: Path | None = None
    shim: Path | None = None
    settings: Mapping[int, str] = field(default_factory=dict)


_lock = threading.RLock()
_status = AllocatorStatus()
_engine: Engine | None = None
_devices: set[int] = set()  # those with settings of their own


def install_allocator(settings: Settings | None = None, *, required: bool = False) -> AllocatorStatus:
    """Puts vramwise's allocator into the place of PyTorch's, for this process and until its end.

    To be called before the first CUDA call. A second call changes settings only. Where it cannot be done, PyTorch's
    allocator stays and standard error gets a line with the reason.

    Args:
        settings: the allocator's settings, for all devices or by device (``{"cuda:0": "...", 1: "..."}``). They come on
            top of PYTORCH_CUDA_ALLOC_CONF.
        required: raise instead of going on with PyTorch's allocator.

    Returns:
        What :func:`allocator_status` says from now on.

    Raises:
        SettingsError: the settings make no sense; nothing was installed.
        NotAvailableError: with ``required``, if it cannot be installed.
    """
    global _status
    with _lock:
        if not _status.installed:
            # Importing it may install the allocator already, where the environment asks for that.
            with contextlib.suppress(ImportError):
                importlib.import_module("torch")
        if not _status.installed:
            try:
                _status = _install(settings)
            except NotAvailableError as error:
                _status = AllocatorStatus(reason=str(error), torch=_torch_version())
                if required:
                    raise NotAvailableError(f"vramwise's allocator: {error}", missing=error.missing) from error
                _say(f"PyTorch's own allocator is used, as {error}")
            except SettingsError as error:
                _status = AllocatorStatus(reason=str(error), torch=_torch_version())
                raise
        elif settings is not None:
            _apply(_require_engine(), settings)
        return allocator_status()


def set_settings(device: int | str, text: str) -> None:
    """Changes the allocator's settings of one device, also while it runs.

    Args:
        device: ``"cuda:1"``, ``1``, or ``"cuda"`` for all.
        text: the settings, as in ``VRAMWISE_ALLOCATOR``.

    Raises:
        SettingsError: they make no sense; nothing was changed.
        NotAvailableError: the allocator is not installed.
    """
    with _lock:
        if not _status.installed:
            raise NotAvailableError(
                f"vramwise's allocator is not installed ({_status.reason}): its settings cannot be changed",
                missing="allocator",
            )
        _apply(_require_engine(), {device: text})


def allocator_status() -> AllocatorStatus:
    """Whether the allocator is installed, and if not, why."""
    with _lock:
        if not _status.installed or _engine is None:
            return _status
        settings = {ALL_DEVICES: _engine.settings(ALL_DEVICES)}
        # A limit that PyTorch's own call set is a device's own as well.
        for device in range(_device_count()):
            text = _engine.settings(device)
            if device in _devices or text != settings[ALL_DEVICES]:
                settings[device] = text
        return AllocatorStatus(True, "", _status.torch, _status.engine, _status.shim, settings)


def _install(settings: Settings | None) -> AllocatorStatus:
    global _engine
    torch = _torch()
    engine = _engine or Engine()
    shim = _shim.find(torch)
    _from_environment(engine)
    if settings is not None:
        _apply(engine, settings)
    reason = shim.install(engine.table)
    if reason is not None:
        raise NotAvailableError(reason, missing="time" if torch.cuda.is_initialized() else "allocator")
    _engine = engine
    _report.register(torch, driver_calls)
    return AllocatorStatus(True, "", str(torch.__version__), engine.path, shim.path)


def _torch() -> ModuleType:
    """PyTorch, if it is one that the allocator can be put into."""
    if not sys.platform.startswith("linux"):
        raise NotAvailableError(f"it works on Linux only, and this is {sys.platform}", missing="Linux")
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise NotAvailableError(f"torch cannot be imported: {error}", missing="torch") from error
    if torch.version.cuda is None:
        raise NotAvailableError(f"this PyTorch ({torch.__version__}) is not a build for CUDA", missing="CUDA")
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        raise NotAvailableError("PYTORCH_NO_CUDA_MEMORY_CACHING is set", missing="permission")
    if torch.cuda.is_initialized():
        raise NotAvailableError(_shim.OUTCOMES[2], missing="time")
    module: ModuleType = torch
    return module


def _torch_version() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _from_environment(engine: Engine) -> None:
    """PyTorch's own variable: what means nothing to this allocator is named and stops nobody."""
    # As in PyTorch, the first that is set counts, even if it is empty.
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            remarks = [engine.set_settings(ALL_DEVICES, text)]
        except VramwiseError as error:
            remarks = [str(error)]
        keys = [option.partition(":")[0].strip() for option in text.split(",")]
        own = ", ".join(key for key in keys if key in _OWN_KEYS)
        if own:
            remarks.append(f"PyTorch refuses {own} when it reads this variable: say it in VRAMWISE_ALLOCATOR instead")
        for remark in filter(None, remarks):
            _say(f"{name}: {remark}")
        return


def _apply(engine: Engine, settings: Settings) -> None:
    if not isinstance(settings, (str, Mapping)):
        raise TypeError(f"settings are text, or texts by device, not {settings!r}")
    given = {ALL_DEVICES: settings} if isinstance(settings, str) else settings
    # Those for all devices first, whatever their place: what is said of one device is more particular.
    numbered = sorted(((_device_number(device), text) for device, text in given.items()), key=lambda each: each[0])
    for (number, _), (following, _) in itertools.pairwise(numbered):
        if number == following:
            raise ValueError(f"settings name {'all devices' if number == ALL_DEVICES else f'cuda:{number}'} twice")
    # All of them or none.
    for _, text in numbered:
        engine.check_settings(text)
    for number, text in numbered:
        remark = engine.set_settings(number, text)
        if number != ALL_DEVICES:
            _devices.add(number)
        if remark:
            _say(remark)


def _device_number(device: int | str) -> int:
    """`cuda:1` and 1 are the second one, `cuda` and -1 are all."""
    text = str(device)
    if text in ("cuda", str(ALL_DEVICES)):
        return ALL_DEVICES
    number = text.removeprefix("cuda:")
    if not number.isdecimal() or not number.isascii():
        raise ValueError(f"{device!r} is no CUDA device: write one like 'cuda:0', or 'cuda' for all")
    count = _device_count()
    if int(number) >= count:
        raise ValueError(f"there is no device {device!r}: this machine has {count} for CUDA")
    return int(number)


def _device_count() -> int:
    torch = sys.modules.get("torch")
    return torch.cuda.device_count() if torch is not None else _MOST_DEVICES


def driver_calls(device: int = 0) -> list[DriverCalls]:
    """What the calls to CUDA's driver cost that the allocator has made for a device: its misses.

    Args:
        device: CUDA's ordinal.

    Returns:
        An entry a kind of call that happened; none where the allocator is not installed or the device was not used.
    """
    return _engine.driver_calls(device) if _status.installed and _engine is not None else []


def movable_bytes(device: int) -> int:
    """Free bytes that the allocator can give to a request of any size and stream, beside what the driver has free.

    Args:
        device: CUDA's ordinal.

    Returns:
        Bytes of the pieces of memory that are wholly free; 0 where the allocator is not installed.
    """
    return _engine.movable(device) if _status.installed and _engine is not None else 0


def _require_engine() -> Engine:
    if _engine is None:
        raise NotAvailableError("vramwise's allocator is not installed", missing="allocator")
    return _engine


def _say(text: str) -> None:
    print(f"vramwise: {text}", file=sys.stderr, flush=True)

"""How this package reaches torch: late, and with an error that says what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from .errors import NotAvailableError


def torch_if_loaded() -> Any | None:
    """torch where the program has imported it already, else ``None``. Imports nothing."""
    return sys.modules.get("torch")


def need_torch(what: str) -> Any:
    """torch itself, imported now if it was not.

    Args:
        what: what needs it, as the beginning of a sentence: ``"vramwise.headroom()"``.

    Raises:
        NotAvailableError: torch is not installed (``missing="torch"``).
    """
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
    raise NotAvailableError(
        f"{what} needs PyTorch, which this Python ({sys.executable}) does not have; install torch there",
        missing="torch",
    )


def why_no_cuda(torch: Any) -> str | None:
    """Why there is no CUDA device to speak of, in half a sentence; ``None`` where there is one."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available():
        built = getattr(getattr(torch, "version", None), "cuda", None)
        hip = getattr(getattr(torch, "version", None), "hip", None)
        if built is None and hip is None:
            return "this PyTorch is built without CUDA"
        return "PyTorch finds no CUDA device (is there a driver, and does CUDA_VISIBLE_DEVICES hide the cards?)"
    return None


def need_cuda(what: str) -> Any:
    """torch, with at least one CUDA device.

    Raises:
        NotAvailableError: torch is not installed (``missing="torch"``) or has no device (``missing="cuda"``).
    """
    torch = need_torch(what)
    why = why_no_cuda(torch)
    if why is not None:
        raise NotAvailableError(f"{what} needs a CUDA device: {why}", missing="cuda")
    return torch


def device_index(torch: Any, device: Any = None) -> int:
    """The number of a device given as ``None`` (the current one), ``1``, ``"cuda:1"`` or a ``torch.device``.

    Raises:
        ValueError: it is no CUDA device, or there are not so many.
    """
    if device is None:
        return int(torch.cuda.current_device())
    if isinstance(device, int) and not isinstance(device, bool):
        index: int | None = device
    else:
        try:
            known = torch.device(device)
        except (RuntimeError, TypeError):
            what = "write a number, 'cuda:0' or a torch.device"
            raise ValueError(f"{device!r} is not a CUDA device: {what}") from None
        if known.type != "cuda":
            raise ValueError(f"{device!r} is not a CUDA device")
        index = known.index
    if index is None:
        return int(torch.cuda.current_device())
    count = int(torch.cuda.device_count())
    if not 0 <= index < count:
        raise ValueError(f"there is no CUDA device {index}: PyTorch sees {count}, numbered from 0")
    return index


def torch_version(torch: Any) -> tuple[int, int]:
    """Major and minor number of the release, ``(0, 0)`` where it cannot be read.

    >>> class Fake: __version__ = "2.11.0+cu130"
    >>> torch_version(Fake)
    (2, 11)
    """
    parts = str(getattr(torch, "__version__", "")).split("+")[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0

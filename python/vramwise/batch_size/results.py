"""Results that are kept between runs, each in a small JSON file of the user's cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._atomic import replace_text
from .._torch_access import torch_if_loaded


def cache_directory() -> Path:
    """Where this package keeps results: ``VRAMWISE_CACHE_DIR``, else ``vramwise`` in the user's cache directory.

    That is ``$XDG_CACHE_HOME`` or ``~/.cache``, on macOS ``~/Library/Caches``, on Windows ``%LOCALAPPDATA%``.
    """
    own = os.environ.get("VRAMWISE_CACHE_DIR")
    if own:
        return Path(own)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vramwise"


def surroundings() -> dict[str, Any]:
    """What a batch size depends on besides the user's program: the card, torch, its allocator, this package."""
    from .. import __version__

    torch = torch_if_loaded()
    facts: dict[str, Any] = {"vramwise": __version__, "torch": str(getattr(torch, "__version__", None))}
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_available():
            card = torch.cuda.get_device_properties(torch.cuda.current_device())
            facts["device"], facts["device_bytes"] = card.name, int(card.total_memory)
            facts.update(_allocator(torch))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            facts[name] = os.environ[name]
    return facts


def _allocator(torch: Any) -> dict[str, Any]:
    """Which allocator serves the card, and what it was told, also while the program runs."""
    facts: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        facts["allocator"] = str(torch.cuda.get_allocator_backend())
    with contextlib.suppress(Exception):
        if facts["allocator"] == "vramwise":
            from ..allocator import allocator_status

            facts["settings"] = {str(device): text for device, text in allocator_status().settings.items()}
        else:
            from ..settings.current import allocator_settings

            facts["settings"] = allocator_settings(torch)
    with contextlib.suppress(Exception):
        facts["memory_fraction"] = float(torch.cuda.get_per_process_memory_fraction())
    return facts


class KeptResults:
    """Integers by key. A file that cannot be read or written is as if it were not there."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    def get(self, key: Mapping[str, Any]) -> int | None:
        """The integer that was kept under the key, else ``None``."""
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._path(key).read_text(encoding="utf-8"))
            # The key is compared too: names are digests, and files can be anybody's.
            if isinstance(kept, dict) and kept.get("key") == _plain(key):
                value = kept.get("batch_size")
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return None

    def put(self, key: Mapping[str, Any], value: int) -> None:
        """Keeps the integer: the whole file, or the one that was there, whenever the program ends."""
        with contextlib.suppress(OSError):
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"key": _plain(key), "batch_size": value}, indent=1, sort_keys=True) + "\n"
            replace_text(path, text)

    def forget(self, key: Mapping[str, Any]) -> None:
        """Removes what is kept under the key."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(_plain(key), sort_keys=True).encode()).hexdigest()[:32]
        return (self._directory or cache_directory()) / "batch-size" / f"{digest}.json"


def _plain(key: Mapping[str, Any]) -> Any:
    """The key as JSON has it, so that what is read back compares equal."""
    return json.loads(json.dumps(dict(key), sort_keys=True, default=repr))

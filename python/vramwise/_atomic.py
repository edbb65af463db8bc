"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

_MOST = 10_000


def new_file(folder: Path, stem: str, ending: str, write: Callable[[IO[bytes]], None]) -> Path:
    """Writes a file as ``STEM.ENDING``, or as ``STEM_2.ENDING`` and so on: it takes the place of no other.

    Args:
        folder: made where it is not there.
        stem: the name without its ending.
        ending: with its dot.
        write: writes the contents into an open file.

    Raises:
        OSError: the folder cannot be made or written, or the disk is full; nothing is left behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(folder / f"{stem}{ending}")
    try:
        with open(temporary, "wb") as file:
            write(file)
            _settle(file)
        for number in range(1, _MOST):
            path = folder / (f"{stem}{ending}" if number == 1 else f"{stem}_{number}{ending}")
            if _place(temporary, path):
                return path
        raise FileExistsError(f"{folder} has {_MOST - 1} files named {stem}{ending} already")
    finally:
        # Also where Control-C comes in between.
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace_text(path: Path, text: str) -> None:
    """Writes a text, in the place of what was there.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    temporary = _temporary(path)
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            _settle(file)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _place(temporary: Path, path: Path) -> bool:
    """Gives a file its name unless that is taken; whether it did."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError:
        # A file system without hard links: a moment remains in which two processes may choose the same name.
        if path.exists():
            return False
        temporary.replace(path)
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _settle(file: IO[Any]) -> None:
    """A machine that goes down takes no half file with it."""
    file.flush()
    with contextlib.suppress(OSError):
        os.fsync(file.fileno())

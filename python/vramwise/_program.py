"""Where the program and the libraries of this package lie."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from .errors import NotAvailableError

LIBRARIES = Path(__file__).parent / "lib"
"""Directory of the shared objects."""


def library(name: str) -> Path:
    """The shared object of that name.

    Raises:
        NotAvailableError: This installation does not have it.
    """
    directory = os.environ.get("VRAMWISE_LIB_DIR")
    path = (Path(directory) if directory else LIBRARIES) / name
    if not path.is_file():
        raise NotAvailableError(
            f"this installation of vramwise has no {name} (looked for {path}); install the wheel for Linux",
            missing=name,
        )
    return path


def program() -> str:
    """Path of the ``vramwise`` program that was installed with this package, or else of one on the search path.

    Raises:
        NotAvailableError: There is none.
    """
    name = "vramwise.exe" if sys.platform == "win32" else "vramwise"
    scripts = [sysconfig.get_path("scripts")]
    scripts.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    # `pip install --target` puts programs into a directory beside the packages.
    scripts.append(str(Path(__file__).parent.parent / "bin"))
    for directory in scripts:
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise NotAvailableError(
            f"the program vramwise is in none of {', '.join(scripts)} and not on the search path", missing=name
        )
    return found


def environment() -> dict[str, str]:
    """The environment for the program: it finds the libraries of this package wherever it lies itself."""
    environ = dict(os.environ)
    if LIBRARIES.is_dir():
        environ.setdefault("VRAMWISE_LIB_DIR", str(LIBRARIES))
    return environ


def run(line: Sequence[str], *, timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the program and waits; where SIGTERM ends this process meanwhile, so does the program with its children.

    A process without a handler for SIGTERM ends at once, and its children would run on. A handler of the caller's is
    left alone, and threads other than the main one can set none.

    Args:
        line: the program and its arguments.
        timeout: seconds that it may take; ``None`` for any time.
        **options: as for :class:`subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took longer.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with subprocess.Popen(list(line), **options) as child:
        if ours:
            signal.signal(signal.SIGTERM, _terminated)
        try:
            output, errors = child.communicate(timeout=timeout)
        except KeyboardInterrupt:
            # A terminal has told the program too, which ends its own children, and needs a moment for it.
            _stop(child, ask=False)
            raise
        except BaseException as error:
            _stop(child, ask=True)
            if isinstance(error, _TerminatedError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            raise
        finally:
            if ours:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return subprocess.CompletedProcess(list(line), child.returncode, output, errors)


# Seconds between asking the program to end and ending it.
_GRACE = 30


class _TerminatedError(BaseException):
    """SIGTERM came while a child ran; seen by nobody outside."""


def _terminated(number: int, frame: FrameType | None) -> None:
    raise _TerminatedError


def _stop(child: subprocess.Popen[str], *, ask: bool) -> None:
    if ask:
        child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()

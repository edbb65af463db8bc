"""Where the program and the libraries of this package lie."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

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

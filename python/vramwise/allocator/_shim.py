"""The shim, which connects the engine to one exact build of PyTorch: found ready-made, in the cache, or compiled."""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from ..errors import NotAvailableError
from . import _compiler
from ._engine import library_directory

SOURCE = Path(__file__).resolve().parent / "shim"
OUTCOMES = {
    1: "it is installed already",
    2: "CUDA is up already: install it before the first CUDA call, best right after `import torch`",
    3: "this PyTorch has no CUDA allocator",
    4: "the engine and the shim are of different versions of vramwise",
}


def minor_version(torch: ModuleType) -> int:
    """The N of PyTorch 2.N."""
    numbers = str(torch.__version__).split("+")[0].split(".")
    if numbers[0] != "2" or not numbers[1].isdigit() or int(numbers[1]) < 9:
        raise NotAvailableError(
            f"it needs PyTorch 2.9 or later, and this is {torch.__version__}", missing="PyTorch 2.9"
        )
    return int(numbers[1])


def ready_made_name(torch: ModuleType) -> str:
    """The name that a shim for this PyTorch has in the package's ``lib``."""
    return f"libvramwise_shim-2.{minor_version(torch)}-{torch.version.git_version[:12]}.so"


class Shim:
    """A loaded shim that was made for the PyTorch of this process."""

    def __init__(self, path: Path, torch: ModuleType) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
            built_for = self._library.vramwise_shim_built_for
        except (OSError, AttributeError) as error:
            raise NotAvailableError(
                f"its shim cannot be loaded; if {path} is damaged, remove it: {error}", missing="shim"
            ) from error
        built_for.restype = ctypes.c_char_p
        made_for = built_for().decode()
        if made_for.split(" ")[-1] != torch.version.git_version:
            raise NotAvailableError(
                f"{path} was made for PyTorch {made_for}, and this is {torch.__version__} {torch.version.git_version}",
                missing="shim",
            )

    def install(self, table: int) -> str | None:
        """Puts the engine into PyTorch; returns why it could not be, or ``None``."""
        code = self._library.vramwise_shim_install(ctypes.c_void_p(table))
        return None if code == 0 else OUTCOMES.get(code, f"the shim answered {code}")


def find(torch: ModuleType) -> Shim:
    """A shim for exactly this PyTorch.

    Raises:
        NotAvailableError: there is none, and none can be compiled; the text says why.
    """
    ready = library_directory() / ready_made_name(torch)
    if ready.is_file():
        return Shim(ready, torch)
    return Shim(_cached(torch), torch)


def build(torch: ModuleType, directory: Path) -> Path:
    """Compiles a shim for this PyTorch into a directory, made if need be, under the name by which it is found there."""
    path = directory / ready_made_name(torch)
    directory.mkdir(parents=True, exist_ok=True)
    _compile_to(_compiler.plan(torch, SOURCE, minor_version(torch)), path)
    return path


def _cached(torch: ModuleType) -> Path:
    plan = _compiler.plan(torch, SOURCE, minor_version(torch))
    directory = _cache_directory()
    path = directory / f"shim-{plan.key}.so"
    if not path.is_file():
        try:
            with _locked(directory / f"shim-{plan.key}.lock"):
                if not path.is_file():
                    _compile_to(plan, path)
        except OSError as error:
            raise _unusable(directory, error) from error
    return path


def _compile_to(plan: _compiler.Plan, path: Path) -> None:
    # Whoever finds the name finds the whole file.
    number, half = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    os.close(number)
    try:
        plan.run(Path(half))
        os.chmod(half, 0o644)
        os.replace(half, path)
    finally:
        Path(half).unlink(missing_ok=True)


def _cache_directory() -> Path:
    """VRAMWISE_CACHE_DIR, or else the user's cache directory; code is loaded from it, so it must be the user's own."""
    given = os.environ.get("VRAMWISE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(given) if given else Path(home) / "vramwise"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
    except OSError as error:
        raise _unusable(directory, error) from error
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022 or not os.access(directory, os.W_OK):
        raise NotAvailableError(
            f"the cache directory {directory} must be writable by you and by nobody else: VRAMWISE_CACHE_DIR names "
            "another",
            missing="cache directory",
        )
    return directory


def _unusable(directory: Path, error: OSError) -> NotAvailableError:
    return NotAvailableError(
        f"the cache directory {directory} cannot be used ({error.strerror}): VRAMWISE_CACHE_DIR names another",
        missing="cache directory",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the ranks of a job start together."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

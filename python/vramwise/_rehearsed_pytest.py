"""pytest once more, as the program that ``vramwise rehearse`` runs on its emulated GPU."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from ._program import environment as program_environment
from ._program import run as run_program
from .batch_size.predict import find_program

_OPTION = "--vramwise-rehearse"
_SIZE = re.compile(r"[\d.]+\s*([KMGT]i?B?)?", re.IGNORECASE)
# pytest's own statuses for a run that cannot begin.
_USAGE_ERROR = 4


def run(words: list[str], wish: str, status_file: str) -> int:
    """Runs the tests on the emulated GPU, once, and gives pytest's exit status.

    Args:
        words: pytest's arguments as they were given.
        wish: what the option's value was taken to be.
        status_file: the variable that names the file for the child's exit status.
    """
    program = find_program()
    if program is None:
        return _refuse("the program vramwise was not found: install it, or name it in VRAMWISE_BIN")
    words, gpu, memory = arguments(words, wish)
    if memory == "":
        return _refuse(
            f"no size stands behind the colon of {gpu or ''}: (write it as in a100:24GiB, or leave out the colon)"
        )
    line = [program, "rehearse", "--values", "one"]
    line += ["--gpu", gpu] if gpu else []
    line += ["--memory", memory] if memory else []
    with tempfile.TemporaryDirectory(prefix="vramwise-pytest-") as folder:
        path = Path(folder) / "status"
        environment = {**program_environment(), status_file: str(path)}
        child = [*line, "--", sys.executable, "-m", "pytest", *words]
        try:
            ended = run_program(child, env=environment).returncode
        except OSError as error:
            return _refuse(f"{program} cannot be run: {error}")
        except KeyboardInterrupt:
            return 2
        # The rehearsal's own status says whether everything fitted; tests that expect an error have their say here.
        if path.is_file() and (text := path.read_text(encoding="ascii")).isdecimal():
            return int(text)
    return _refuse(f"the rehearsal ended with status {ended} before pytest did") if ended in (0, 1, 2) else ended


def arguments(words: list[str], wish: str) -> tuple[list[str], str | None, str | None]:
    """Pytest's arguments without the option, the card, and its memory, which is empty where a colon has none behind it.

    Where the option stands alone, the word behind it is an argument of pytest, though the parser took it for the value.

    >>> arguments(["-q", "--vramwise-rehearse=a100:24GiB", "tests"], "a100:24GiB")
    (['-q', 'tests'], 'a100', '24GiB')
    >>> arguments(["--vramwise-rehearse", "tests"], "tests")
    (['tests'], None, None)
    """
    rest = [word for word in words if word != _OPTION and not word.startswith(_OPTION + "=")]
    values = [word.split("=", 1)[1] for word in words if word.startswith(_OPTION + "=")]
    # From an ini file or PYTEST_ADDOPTS, the value is all there is to see.
    value = values[-1] if values else "" if _OPTION in words else wish
    gpu, colon, memory = value.partition(":")
    if colon and not memory.strip():
        return rest, gpu or None, ""
    if not memory and _SIZE.fullmatch(gpu):
        gpu, memory = "", gpu
    return rest, gpu or None, memory or None


def _refuse(why: str) -> int:
    sys.stderr.write(f"{_OPTION}: {why}\n")
    return _USAGE_ERROR

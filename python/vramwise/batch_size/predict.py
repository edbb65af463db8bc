"""The largest batch on the emulated card, asked of ``vramwise fit`` in a child process before the card is tried."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _program
from .._torch_access import torch_if_loaded
from ..errors import NotAvailableError

_log = logging.getLogger("vramwise.batch_size")

#: Set to a number, searches of this process try this one batch size and nothing else.
FORCED = "VRAMWISE_BATCH_SIZE"


@dataclass(frozen=True)
class Prediction:
    """How to predict a batch size without the card.

    Attributes:
        command: the program, with ``{batch}`` where the batch size goes: words, or a line that is split as a shell
            does. ``None`` for the running script with its arguments: in the child, searches do not search, but try the
            batch size that is asked for.
        gpu: name of a profile (``vramwise devices``); ``None`` for the one of the current device.
        memory: size of the card's memory, such as ``"24GiB"``; ``None`` for the current device's less the margin.
        steps: optimizer steps a trial; each trial ends after them.
        timeout_s: seconds that the whole prediction may take.
    """

    command: str | Sequence[str] | None = None
    gpu: str | None = None
    memory: str | int | None = None
    steps: int = 3
    timeout_s: float = 600.0


def forced_batch_size() -> int | None:
    """The one batch size that this process is to try (a trial of ``vramwise fit``), or ``None``."""
    text = os.environ.get(FORCED, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def as_prediction(predict: Any) -> Prediction | None:
    """``True``, a command or a :class:`Prediction`, in one form; ``None`` where nothing is to be predicted.

    Raises:
        ValueError: a command without ``{batch}``.
        TypeError: it is none of these.
    """
    if predict is None or predict is False:
        return None
    if isinstance(predict, Prediction):
        prediction = predict
    elif predict is True:
        prediction = Prediction()
    elif isinstance(predict, (str, list, tuple)):
        prediction = Prediction(command=predict)
    else:
        raise TypeError(f"predict is True, a command with {{batch}} or a Prediction, not {predict!r}")
    if prediction.command is not None and not any("{batch}" in word for word in _words(prediction.command)):
        raise ValueError("the command of predict= has no {batch}: write it where the batch size goes")
    return prediction


def predicted_batch_size(
    prediction: Prediction, *, lowest: int, highest: int, margin_bytes: int = 0, world_size: int = 1
) -> int | None:
    """What ``vramwise fit`` finds between two sizes, for a search to begin with; ``None`` if it cannot say.

    Why it cannot say is a warning in the log. Gives ``lowest`` also where not even this is found to fit, since a
    prediction decides nothing by itself.
    """
    if os.environ.get("VRAMWISE_REHEARSAL") or forced_batch_size() is not None:
        return None
    try:
        largest = ask_fit(prediction, lowest=lowest, highest=highest, margin_bytes=margin_bytes, world_size=world_size)
    except NotAvailableError as error:
        _log.warning("no prediction of the batch size: %s", error)
        return None
    return largest or lowest


def ask_fit(
    prediction: Prediction, *, lowest: int, highest: int, margin_bytes: int = 0, world_size: int = 1
) -> int | None:
    """The largest size between two that fits on the emulated card; ``None`` if not even the lowest does.

    Raises:
        NotAvailableError: it could not be asked, or the program failed for another reason than memory.
    """
    program = find_program()
    if program is None:
        raise NotAvailableError("the program vramwise was not found; VRAMWISE_BIN can name it", missing="vramwise")
    command = _words(prediction.command) if prediction.command is not None else running_command()
    if command is None:
        raise NotAvailableError("this process runs no script that a child could run: give a command", missing="script")
    memory = prediction.memory
    if memory is None and (total := _device_bytes()) is not None:
        memory = max(total - margin_bytes, 1 << 30)
    gpu = prediction.gpu or _profile(program)
    if gpu is None and _device_bytes() is None:
        raise NotAvailableError(
            "this process has no CUDA device whose card could be meant: name one, as in Prediction(gpu='h200')",
            missing="cuda",
        )
    if gpu is None:
        raise NotAvailableError("no profile has this card's name: give one of `vramwise devices`", missing="profile")
    line = [program, "fit", "--json", "--gpu", gpu, "--vary", f"batch={lowest}..{highest}"]
    line += ["--steps", str(prediction.steps), "--emulate-anyway"]
    line += ["--memory", str(memory)] if memory is not None else []
    line += ["--world-size", str(world_size)] if world_size > 1 else []
    return _largest([*line, "--", *command], prediction.timeout_s)


def _largest(line: list[str], timeout_s: float) -> int | None:
    # A rank's child is no rank of the parent's group.
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
    environment = {name: value for name, value in _program.environment().items() if name not in ranks}
    try:
        done = _program.run(
            line,
            timeout=timeout_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode in (0, 1):
            largest = json.loads(done.stdout)["results"][0]["largest"]
            return None if largest is None else int(largest)
        said = " / ".join(done.stderr.strip().splitlines()[:3]) or f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, IndexError, TypeError) as error:
        said = f"{type(error).__name__}: {error}"
    raise NotAvailableError(f"vramwise fit said: {said}", missing="prediction")


def _words(command: str | Sequence[str]) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command]


def running_command() -> list[str] | None:
    """This script with its arguments, made to try ``{batch}`` only; ``None`` in an interactive session."""
    arguments = sys.orig_argv[1:]
    if not arguments or hasattr(sys, "ps1") or "ipykernel" in sys.modules or arguments[0] == "-c":
        return None
    return ["env", FORCED + "={batch}", sys.executable, *arguments]


def find_program() -> str | None:
    """The program ``vramwise``: ``VRAMWISE_BIN``, the one installed with this package, or the search path's."""
    own = os.environ.get("VRAMWISE_BIN")
    if own:
        return own if Path(own).is_file() else None
    with contextlib.suppress(NotAvailableError):
        return _program.program()
    return None


def _device_bytes() -> int | None:
    torch = torch_if_loaded()
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def _profile(program: str) -> str | None:
    """The profile with the current device's name, and of several the one nearest in memory."""
    torch = torch_if_loaded()
    total = _device_bytes()
    if torch is None or total is None:
        return None
    own = str(torch.cuda.get_device_name()).lower()
    try:
        line = [program, "devices", "--json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
        rows = json.loads(done.stdout)["devices"]
        same = [row for row in rows if str(row["name"]).lower() == own]
        return str(min(same, key=lambda row: abs(row["total_bytes"] - total))["id"]) if same else None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None

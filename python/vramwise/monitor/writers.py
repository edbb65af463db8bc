"""Where readings of memory go: text, JSON lines, TensorBoard, a file for Prometheus."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, Union, cast

from .._atomic import replace_text
from .reading import MemoryReading


class Writer(Protocol):
    """Takes readings. One of your own needs this one method."""

    def write(self, reading: MemoryReading) -> None:
        """Takes one reading."""


# Or something with ``add_scalar`` or ``write(reading)``, or several in a list.
Target = Union[Callable[[str], Any], logging.Logger, str, "os.PathLike[str]", Writer, Iterable[Any], Any]


class Lines:
    """Hands each reading on as one line of text.

    Args:
        say: ``print``, or any function that takes a text.
    """

    def __init__(self, say: Callable[[str], Any] = print) -> None:
        self._say = say

    def write(self, reading: MemoryReading) -> None:
        """Says the reading."""
        self._say(str(reading))


class JsonLines:
    """Appends each reading to a file, as one line of JSON with the names of :class:`MemoryReading`.

    A line is written by one call, so that ranks may share a file on a local disk; each line has its ``rank``.

    Args:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def write(self, reading: MemoryReading) -> None:
        """Appends the reading.

        Raises:
            OSError: the file cannot be written.
        """
        line = (json.dumps(reading.as_dict()) + "\n").encode()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(file, line) != len(line):
                raise OSError(f"{self._path} could not be written whole: is the disk full?")
        finally:
            os.close(file)


class TensorBoard:
    """Adds each reading to a ``SummaryWriter``: one chart for each size, in GiB, and for retries and failures.

    Args:
        summary: a ``torch.utils.tensorboard.SummaryWriter``, or anything with its ``add_scalar``.
        prefix: what charts' names begin with.
    """

    def __init__(self, summary: Any, prefix: str = "memory") -> None:
        self._summary = summary
        self._prefix = prefix

    def write(self, reading: MemoryReading) -> None:
        """Adds the reading."""
        for name, value in reading.as_dict().items():
            if value is None or not (name.endswith("_bytes") or name.startswith("num_")):
                continue
            shown = name.removesuffix("_bytes")
            chart = f"{self._prefix}/cuda{reading.device}/{shown}" + ("_gib" if shown != name else "")
            number = value / (1 << 30) if shown != name else value
            self._summary.add_scalar(chart, number, global_step=reading.step)


_METRICS = (
    ("torch_allocated_bytes", "gauge", "allocated_bytes", "Bytes in blocks that tensors use."),
    ("torch_reserved_bytes", "gauge", "reserved_bytes", "Bytes that PyTorch's allocator holds."),
    ("torch_active_bytes", "gauge", "active_bytes", "Bytes in use or waiting for another stream."),
    ("torch_inactive_split_bytes", "gauge", "inactive_split_bytes", "Free bytes between blocks in use."),
    ("torch_allocated_bytes_peak", "gauge", "peak_allocated_bytes", "Peak of allocated bytes."),
    ("torch_reserved_bytes_peak", "gauge", "peak_reserved_bytes", "Peak of reserved bytes."),
    ("torch_alloc_retries_total", "counter", "num_alloc_retries", "Times that the cache was given back to go on."),
    ("torch_ooms_total", "counter", "num_ooms", "Allocations that failed."),
    ("device_free_bytes", "gauge", "free_bytes", "Bytes that the driver has free."),
    ("device_total_bytes", "gauge", "total_bytes", "Bytes of the device."),
    ("device_other_bytes", "gauge", "other_bytes", "Bytes in use that PyTorch's allocator does not hold."),
    ("step", "gauge", "step", "The step that ended last."),
)


class PrometheusTextfile:
    """Keeps a file with the newest readings, in the text format that node_exporter's textfile collector reads.

    The file is replaced as a whole, never seen half written. Name it ``*.prom``, one for each process.

    Args:
        path: the file.
        labels: labels for all metrics, such as ``{"job": "train"}``; ``gpu_index`` and ``rank`` are added.

    Raises:
        ValueError: a label has a name that Prometheus does not take.
    """

    def __init__(self, path: str | os.PathLike[str], labels: Mapping[str, str] | None = None) -> None:
        self._path = Path(path)
        self._labels = dict(labels or {})
        for name in self._labels:
            if not (name.isascii() and name.isidentifier()) or name.startswith("__"):
                raise ValueError(f"{name!r} is no name for a label: use letters, digits and _, beginning with a letter")
        self._newest: dict[int, MemoryReading] = {}

    def write(self, reading: MemoryReading) -> None:
        """Replaces the file by one with this reading.

        Raises:
            OSError: it cannot be written.
        """
        self._newest[reading.device] = reading
        replace_text(self._path, self.text())

    def text(self) -> str:
        """What the file says now."""
        lines = []
        for name, kind, field, what in _METRICS:
            values = [(r, value) for _, r in sorted(self._newest.items()) if (value := r.as_dict()[field]) is not None]
            if values:
                lines += [f"# HELP vramwise_{name} {what}", f"# TYPE vramwise_{name} {kind}"]
                lines += [f"vramwise_{name}{{{self._label_text(r)}}} {value}" for r, value in values]
        return "".join(line + "\n" for line in lines)

    def _label_text(self, reading: MemoryReading) -> str:
        labels = {"gpu_index": str(reading.device), **self._labels}
        if reading.rank is not None:
            labels.setdefault("rank", str(reading.rank))
        return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def writers_for(target: Target) -> list[Writer]:
    """The writers that a target stands for, see :func:`vramwise.log_memory`.

    Raises:
        TypeError, ValueError: it is nothing that readings could go to.
    """
    if isinstance(target, logging.Logger):
        return [Lines(target.info)]
    if isinstance(target, (str, os.PathLike)):
        ending = Path(target).suffix
        if ending in (".jsonl", ".ndjson"):
            return [JsonLines(target)]
        if ending == ".prom":
            return [PrometheusTextfile(target)]
        raise ValueError(f"{os.fspath(target)!r}: a file ends in .jsonl (JSON lines) or .prom (Prometheus)")
    if hasattr(target, "add_scalar"):
        return [TensorBoard(target)]
    if isinstance(target, (Lines, JsonLines, TensorBoard, PrometheusTextfile)):
        return [target]
    # A file has a write of its own, which takes a text; standard error is among them.
    if hasattr(target, "write") and not hasattr(target, "writelines"):
        return [cast("Writer", target)]
    if callable(target):
        return [Lines(target)]
    if isinstance(target, Iterable) and not hasattr(target, "writelines"):
        return [writer for one in target for writer in writers_for(one)]
    raise TypeError(
        f"readings cannot go to {target!r}: give a function such as print, a logging.Logger, a file name ending in "
        ".jsonl or .prom, a SummaryWriter, something with write(reading), or a list of these"
    )

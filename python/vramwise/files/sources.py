"""What a snapshot is read from, and logs, of which only the errors are of interest."""

from __future__ import annotations

import errno
import os
from typing import Protocol

from ..reports import ExplainReport
from .asking import count, typed
from .snapshot import Snapshot, StrPath


class Readable(Protocol):
    """A file object that was opened for reading bytes."""

    def read(self) -> bytes:
        """The rest of the file."""
        ...


def read(source: StrPath | bytes | bytearray | memoryview | Readable) -> Snapshot:
    """Reads a memory snapshot.

    Args:
        source: path of what ``torch.cuda.memory._dump_snapshot()`` wrote (a pickle or JSON file, also compressed
            with gzip or zstd), or its content, or a file object that gives it.

    Returns:
        The snapshot. It is held in memory once, however many questions are asked.

    Raises:
        OSError: The file cannot be opened, such as :class:`FileNotFoundError`.
        UnreadableFileError: It is no snapshot, or damaged beyond use.
        TypeError: It is none of these.
    """
    from .. import _native

    if isinstance(source, (str, os.PathLike)):
        if os.path.isdir(source):
            inside = sorted(name for name in os.listdir(source) if ".pickle" in name or ".json" in name)
            such = f", such as {os.path.join(source, inside[0])}" if inside else ", of which none is a snapshot"
            raise IsADirectoryError(
                errno.EISDIR, f"Is a directory; read one of the files in it{such}", os.fspath(source)
            )
        return Snapshot(_native.Recording.read(os.fspath(source)))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Snapshot(_native.Recording.from_bytes(bytes(source), "<bytes>"))
    if not hasattr(source, "read"):
        raise TypeError(f"a snapshot is read from a path, from bytes, or from an open file, not from {source!r}")
    content = source.read()
    if not isinstance(content, bytes):
        raise TypeError("the file must be opened for reading bytes, as open(path, 'rb') does")
    name = getattr(source, "name", None)
    return Snapshot(_native.Recording.from_bytes(content, name if isinstance(name, str) else "<file>"))


def explain_text(log: str, *, top: int = 10) -> ExplainReport:
    """Finds every out-of-memory error in a text and says why each happened.

    Args:
        log: a log, a traceback, the text of an exception, whatever stands around the errors.
        top: rows in the report's tables.

    Returns:
        What was found; ``kind`` is ``"none"`` if nothing was.
    """
    from .. import _native

    if not isinstance(log, str):
        raise TypeError(f"the log is a text, not {type(log).__name__}; open a file for reading text")
    answer = _native.report(["explain", f"--top={count(top, 'top')}", "--", "<text>"], [], log)
    return typed(ExplainReport, answer)

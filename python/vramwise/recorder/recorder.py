"""The recorder itself."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._atomic import new_file, replace_text
from .._say import warn
from .._torch_access import need_torch, why_no_cuda
from ..errors import NotAvailableError
from . import about, history, names, triggers
from .options import Context, Options, Stacks, signal_number, threshold

if TYPE_CHECKING:
    from typing_extensions import Self

STEP = "vramwise.step"
# What every reader of snapshots understands; Python 3.14 would write 5.
_PROTOCOL = 4


class _Turn:
    """One file at a time: a snapshot is as large as the history, and a signal may come while one is written."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        # Re-entrant, since the handler of a signal runs in the thread that it interrupts.
        self.lock = threading.RLock()
        self.taken = False


_turn = _Turn()


class Recorder:
    """Records the allocator's history of this process and writes it to files.

    Made by :func:`vramwise.record` and :func:`vramwise.start_recording`. It keeps no tensor, no frame and no exception.

    Several at once share PyTorch's one history: the first begins it, with its bounds, and the last one to
    stop ends it. Each writes its own files; two that write into one folder write one file for a failed
    allocation. After ``fork`` the child's copy does nothing.

    Attributes:
        options: what was asked, see :class:`vramwise.recorder.Options`.
        files: the snapshots written so far and still there, oldest first.
        steps: how many steps have ended.
        failures: how many files could not be written; only the first is warned of.
        notes: what is not as asked, in sentences.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.files: list[Path] = []
        self.steps = 0
        self.failures = 0
        self.notes: list[str] = []
        self._torch: Any = None
        self._pid = os.getpid()
        self._span: Any = None
        self._ooms = 0
        self._periodic: list[Path] = []
        self._above = False
        self._failed: dict[str, int] | None = None

    @property
    def recording(self) -> bool:
        """Whether it is at work, in this process."""
        return self._torch is not None and self._pid == os.getpid()

    def start(self) -> Recorder:
        """Begins. Does nothing where it has begun already.

        Raises:
            NotAvailableError: torch is not installed; with ``strict`` also where there is no CUDA device, or the
                allocator in use keeps no history. Without ``strict`` these are a warning, and nothing is recorded.
            RuntimeError: a signal was asked for outside the main thread.
        """
        if self.recording:
            return self
        torch = need_torch("vramwise.record()")
        why = why_no_cuda(torch)
        if why is not None:
            return self._not_recording(why, "cuda")
        try:
            torch.cuda.init()
            note = history.begin(torch, self.options)
        except RuntimeError as error:
            first = (str(error).splitlines() or ["RuntimeError"])[0]
            return self._not_recording(f"PyTorch keeps no history here ({first})", "memory history")
        self._pid, self._torch, self._span = os.getpid(), torch, None
        try:
            unheard = triggers.attach(torch, self)
        except BaseException:
            self._torch = None
            history.end(torch)
            raise
        self.notes += [text for text in (note, unheard) if text is not None]
        return self

    def stop(self) -> None:
        """Writes the last file where ``at_end`` says so, and ends the recording. A second call does nothing."""
        self._stop(self.options.at_end)

    def _stop(self, write: bool) -> None:
        if not self.recording:
            return
        try:
            if write:
                # Before the step that is under way is closed: it did not end here.
                self._write("end")
        finally:
            torch, self._torch = self._torch, None
            with contextlib.suppress(Exception):
                triggers.detach(self)
            with contextlib.suppress(Exception):
                self._close_span()
            with contextlib.suppress(Exception):
                history.end(torch)

    def step(self) -> None:
        """Ends a step: call it once at the end of each.

        The step gets a mark in the history, an annotation ``vramwise.step#N`` counted from 0, by which
        ``vramwise leaks`` and ``vramwise inspect`` tell steps; what the program allocates before the first call
        is not within any. Writes a file where ``every`` or ``above`` says so.
        """
        if not self.recording:
            return
        number, self.steps = self.steps, self.steps + 1
        self._failed = None
        if self._span is None:
            # The first step began nobody knows when: only its end is marked.
            self._open_span(number)
        self._close_span()
        self._open_span(number + 1)
        every = self.options.every
        if every is not None and self.steps % every == 0:
            self._write_periodic(number)
        if self.options.above is not None and self._passed_threshold():
            self._write("above", number)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Marks a part of the program in the history, such as ``"evaluation"``: a block for ``with``.

        ``vramwise inspect --by phase`` groups by it, and ``vramwise leaks --marker NAME`` counts by it.
        """
        if not self.recording:
            yield
            return
        with self._torch.autograd.profiler.record_function(name):
            yield

    def dump(self, reason: str = "manual") -> Path | None:
        """Writes a snapshot now.

        Args:
            reason: a word that begins the file's name: letters, digits and ``-``.

        Returns:
            The file, or ``None`` where nothing is recorded, another file is being written, or writing failed, which
            is a warning.

        Raises:
            ValueError: the reason cannot be part of a name.
        """
        if not reason.replace("-", "").isalnum():
            raise ValueError(f"reason is {reason!r}: use letters, digits and '-', since it is part of a file's name")
        return self._write(reason) if self.recording else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ran_out = kind is not None and _ran_out(kind, error)
        if ran_out and self._failed is None and self.recording and self.options.on_oom:
            # It did not come by way of the allocator, but from a library that asked the driver itself.
            self._write("oom")
        # Up to there the history is in a file already, and the user's error is not to wait for another.
        self._stop(self.options.at_end and not (ran_out and self.options.on_oom))

    def _on_out_of_memory(self, failed: dict[str, int], write: bool) -> None:
        self._failed = failed
        if write and self._ooms < self.options.oom_limit:
            self._ooms += 1
            self._write("oom", failed=failed)

    def _write_periodic(self, step: int) -> None:
        path = self._write("periodic", step)
        if path is None:
            return
        self._periodic.append(path)
        while len(self._periodic) > self.options.keep:
            oldest = self._periodic.pop(0)
            self.files.remove(oldest)
            for file in (oldest, about.beside(oldest)):
                with contextlib.suppress(OSError):
                    file.unlink()

    def _passed_threshold(self) -> bool:
        """Whether reserved memory is above the threshold now and was not at the last step."""
        before, self._above = self._above, False
        cuda, above = self._torch.cuda, self.options.above or 0
        for index in range(cuda.device_count()):
            reserved = cuda.memory_reserved(index)
            share = isinstance(above, float)
            limit = above * cuda.get_device_properties(index).total_memory if share else above
            self._above |= reserved > limit
        return self._above and not before

    def _write(self, reason: str, step: int | None = None, failed: dict[str, int] | None = None) -> Path | None:
        """Writes a snapshot and its description; a failure is one warning, and only interrupts leave."""
        with _turn.lock:
            if _turn.taken:
                # A signal in the middle of this: a file is being written already.
                return None
            _turn.taken = True
            try:
                return self._written(reason, self.steps if step is None else step, failed)
            except Exception as error:  # noqa: BLE001 - the program that is recorded must go on
                self._could_not(f"{type(error).__name__}: {error}")
                return None
            finally:
                _turn.taken = False

    def _written(self, reason: str, step: int, failed: dict[str, int] | None) -> Path:
        torch = self._torch
        if not history.is_on(torch) and history.can_tell(torch):
            self._note("the program has switched the history off: there is none behind that moment")
        stem = names.stem(reason, names.ranks(torch)["rank"], step if self.steps else None)
        with _no_collections():
            snapshot = torch.cuda.memory._snapshot()
            path = new_file(
                self.options.folder, stem, ".pickle", lambda file: pickle.dump(snapshot, file, protocol=_PROTOCOL)
            )
        self.files.append(path)
        text = about.describe(
            torch,
            snapshot,
            file=path.name,
            reason=reason,
            step=step if self.steps else None,
            options=self.options,
            notes=self.notes,
            failed=failed,
        )
        replace_text(about.beside(path), text)
        return path

    def _could_not(self, why: str) -> None:
        self.failures += 1
        if self.failures == 1:
            warn(f"no snapshot written to {self.options.folder} ({why}); the program goes on")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _not_recording(self, why: str, missing: str) -> Recorder:
        if self.options.strict:
            raise NotAvailableError(f"nothing can be recorded: {why}", missing=missing)
        self.notes.append(f"nothing is recorded: {why}")
        warn(self.notes[-1])
        return self

    def _open_span(self, number: int) -> None:
        self._span = self._torch.autograd.profiler.record_function(f"{STEP}#{number}")
        self._span.__enter__()

    def _close_span(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)


def record(
    folder: str | os.PathLike[str] = "snapshots",
    *,
    max_entries: int = 200_000,
    context: Context | None = "alloc",
    stacks: Stacks = "python",
    on_oom: bool = True,
    oom_limit: int = 3,
    on_signal: int | str | None = None,
    at_end: bool = True,
    every: int | None = None,
    keep: int = 3,
    above: float | str | None = None,
    strict: bool = False,
) -> Recorder:
    """A recorder for a block of the program.

    ::

        with vramwise.record("snapshots") as recorder:
            for batch in batches:
                train(batch)
                recorder.step()

    Files are named after why, which rank and which step: ``oom_rank0_step12.pickle``. None takes the place of
    another, and each has a description beside it (``.info``, JSON): counters, settings, versions, cards, the
    failed request. The program's own exceptions leave the block unchanged; what goes wrong here is one warning.

    Args:
        folder: where files go; made when the first one is written.
        max_entries: entries of history for each device, a ring. A step of a transformer is some thousands. PyTorch
            keeps them in host memory, about 1 KB each with stacks; writing 200,000 takes about 3 seconds.
        context: which entries have stacks: ``"alloc"`` (allocations), ``"all"`` (frees too), ``"state"`` (only what
            is live) or ``None`` (quickest; enough for ``vramwise tune``).
        stacks: ``"python"``, or ``"all"`` for C++ frames too, which can make writing a file take minutes.
        on_oom: write one when an allocation fails, before the error is raised.
        oom_limit: at most so many of those, for programs that try again and again.
        on_signal: write one when this signal comes, such as ``"SIGUSR1"``. A handler that was there is called
            afterwards; a signal that would have ended the process still does, but for SIGUSR1 and SIGUSR2.
        at_end: write one at the end of the block, or of the process.
        every: write one after so many steps each (see :meth:`Recorder.step`).
        keep: so many of those remain.
        above: write one when a step ends with more reserved on a device than this: bytes, a text such as
            ``"20GiB"``, or a share of the device's memory (a float up to 1). Once, until it has been below again.
        strict: raise where nothing can be recorded (no CUDA device, an allocator without history), instead of warning.

    Returns:
        A recorder that begins when the block is entered.

    Raises:
        ValueError, TypeError: an argument means nothing.

    Entering the block raises ``NotAvailableError`` where torch is not installed, or with ``strict`` (above).
    """
    return Recorder(
        Options(
            folder=Path(folder),
            max_entries=max_entries,
            context=context,
            stacks=stacks,
            on_oom=on_oom,
            oom_limit=oom_limit,
            on_signal=signal_number(on_signal),
            at_end=at_end,
            every=every,
            keep=keep,
            above=threshold(above),
            strict=strict,
        )
    )


def start_recording(folder: str | os.PathLike[str] = "snapshots", **options: Any) -> Recorder:
    """Begins to record until the end of the process, or until :meth:`Recorder.stop`.

    Call it before the first tensor goes to the device: a history that begins later leaves questions open.

    Args:
        folder: where files go.
        **options: as for :func:`record`.

    Returns:
        The recorder, at work. It need not be kept.

    Raises:
        ValueError, TypeError: an argument means nothing.
        NotAvailableError: torch is not installed, or with ``strict`` nothing can be recorded.
    """
    return record(folder, **options).start()


def _ran_out(kind: type[BaseException], error: BaseException | None) -> bool:
    """Whether an exception says that a device's memory ran out."""
    if kind.__name__ == "OutOfMemoryError":
        return True
    if not issubclass(kind, RuntimeError):
        return False
    try:
        text = str(error).lower()
    except Exception:  # noqa: BLE001 - an error that cannot be printed
        return False
    return "out of memory" in text or "_status_alloc_failed" in text


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Python's collector would look through the growing snapshot again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def after_fork() -> None:
    """In a forked child: a file that the parent was writing is not the child's."""
    _turn.renew()

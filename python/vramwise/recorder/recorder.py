"""The recorder itself."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._atomic import new_file, replace_text
from .._counters import counter
from .._say import warn
from .._torch_access import need_torch, why_no_cuda
from ..errors import NotAvailableError
from ..oom import is_oom_error
from . import about, history, names, triggers
from .callers import Frames, tell_who_asked
from .options import Options
from .sampling import Sampling
from .turns import Turn, no_collections

if TYPE_CHECKING:
    from typing_extensions import Self

STEP = "vramwise.step"
# How the note begins of a recorder that was begun and cannot record.
_NOTHING = "nothing is recorded"
# What every reader of snapshots understands; Python 3.14 would write 5.
_PROTOCOL = 4


_turn = Turn()


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
        # Re-entrant, since the handler of a signal may end a step too. Never waited for by what writes files.
        self._stepping = threading.RLock()
        self._ooms = 0
        self._periodic: list[Path] = []
        self._above = False
        self._failed: dict[str, int] | None = None
        # Of the recorder that began the history, where not all steps have stacks.
        self._sampling: Sampling | None = None
        self._stacks_in_step = True
        self._blocks = 0

    @property
    def recording(self) -> bool:
        """Whether it is at work, in this process."""
        return self._torch is not None and self._pid == os.getpid()

    @property
    def heard_failure(self) -> bool:
        """Whether PyTorch's allocator has told of a failed allocation in the step under way."""
        return self._failed is not None

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
            note, began = history.begin(torch, self.options)
        except RuntimeError as error:
            first = (str(error).splitlines() or ["RuntimeError"])[0]
            return self._not_recording(f"PyTorch keeps no history here ({first})", "memory history")
        self._pid, self._torch, self._span = os.getpid(), torch, None
        samples = began and self.options.samples
        all_stacks = history.why_not_some_stacks(torch) if samples else None
        self._sampling = Sampling(self.steps) if samples and all_stacks is None else None
        if began:
            history.sample(self._sampling)
        self._stacks_in_step = True
        try:
            unheard = triggers.attach(torch, self)
        except BaseException:
            self._torch = None
            history.end(torch)
            raise
        self.notes += [text for text in (note, unheard, all_stacks) if text is not None]
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
                # Another recorder may go on with the history, and nobody would say which steps have stacks.
                self._stacks(torch, True)
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
        is not within any. Writes a file where ``every`` or ``above`` says so. Threads may call it at the same time:
        each call ends the one step that is under way. It raises nothing but interrupts.
        """
        if not self.recording:
            # Also in a forked child, whose copy of the lock may be held by nobody who is there.
            return
        with self._stepping:
            torch = self._torch
            if torch is None:
                return
            try:
                self._end_step(torch)
            except Exception as error:  # noqa: BLE001 - the program that is recorded must go on
                self._could_not(f"a step was not marked ({type(error).__name__}: {error})")

    def _end_step(self, torch: Any) -> None:
        number, self.steps = self.steps, self.steps + 1
        self._failed = None
        if self._span is None:
            # The first step began nobody knows when: only its end is marked.
            self._open_span(torch, number)
        self._close_span()
        self._open_span(torch, number + 1)
        if not self.recording:
            # Another thread has stopped it meanwhile.
            self._close_span()
            return
        self._sees_who_records()
        if self._sampling is not None and history.taken_over() is None:
            self._stacks_in_step = self._sampling.begins(number + 1, _reserved(torch))
            self._stacks(torch, self._stacks_in_step)
        every = self.options.every
        if every is not None and self.steps % every == 0:
            self._write_periodic(number)
        if self.options.above is not None and self._passed_threshold(torch):
            self._write("above", number)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Marks a part of the program in the history, such as ``"evaluation"``: a block for ``with``.

        ``vramwise inspect --by phase`` groups by it, and ``vramwise leaks --marker NAME`` counts by it.

        Raises:
            TypeError: the name is no text.
        """
        if not isinstance(name, str):
            raise TypeError(f"a phase has a name, not {name!r}")
        if not self.recording:
            yield
            return
        torch, sampled = self._torch, self._sampling is not None and self._sampling.enters(name)
        if sampled:
            self._stacks(torch, True)
        try:
            with torch.autograd.profiler.record_function(name):
                yield
        finally:
            if sampled and self.recording:
                self._stacks(torch, self._stacks_in_step)

    def dump(self, reason: str = "manual") -> Path | None:
        """Writes a snapshot now.

        Args:
            reason: a word that begins the file's name: letters, digits and ``-``.

        Returns:
            The file, or ``None`` where another file is being written, or (which is a warning) where nothing is recorded
            or writing failed.

        Raises:
            ValueError, TypeError: the reason cannot be part of a name.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason is a word, not {reason!r}")
        if not reason.replace("-", "").isalnum():
            raise ValueError(f"reason is {reason!r}: use letters, digits and '-', since it is part of a file's name")
        if self.recording:
            return self._write(reason)
        if self._pid == os.getpid() and not any(note.startswith(_NOTHING) for note in self.notes):
            warn("dump() has written nothing: call it while the recorder is at work, between its beginning and its end")
        return None

    def __enter__(self) -> Self:
        self.start()
        self._blocks += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks -= 1
        if self._blocks > 0:
            # The block around this one goes on.
            return
        ran_out = is_oom_error(error)
        if ran_out and self._failed is None and self.recording and self.options.on_oom:
            # It did not come by way of the allocator, but from a library that asked the driver itself.
            self._write("oom")
        # Up to there the history is in a file already, and the user's error is not to wait for another.
        self._stop(self.options.at_end and not (ran_out and self.options.on_oom))

    def _on_out_of_memory(self, failed: dict[str, int], frames: Frames, write: bool) -> None:
        self._failed = failed
        if write and self._ooms < self.options.oom_limit:
            self._ooms += 1
            self._write("oom", failed=failed, frames=frames)
            if self._sampling is not None:
                # What the program does about it, and whether it runs out again, is worth more than a few milliseconds.
                self._sampling.is_of_interest(self.steps)
                self._stacks_in_step = True
                self._stacks(self._torch, True)

    def _stacks(self, torch: Any, wanted: bool) -> None:
        """Whether allocations get stacks from now on, where that is for this recorder to say."""
        if self._sampling is None:
            return
        try:
            history.stacks(torch, wanted)
        except Exception as error:  # noqa: BLE001 - the program that is recorded must go on
            self._note(f"stacks were not switched {'on' if wanted else 'off'} ({type(error).__name__}: {error})")

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

    def _passed_threshold(self, torch: Any) -> bool:
        """Whether reserved memory is above the threshold now and was not at the last step."""
        before, self._above = self._above, False
        cuda, above = torch.cuda, self.options.above or 0
        for index in range(cuda.device_count()):
            reserved = counter(cuda.memory_stats_as_nested_dict(index), "reserved_bytes.all.current")
            share = isinstance(above, float)
            limit = above * cuda.get_device_properties(index).total_memory if share else above
            self._above |= reserved > limit
        return self._above and not before

    def _write(
        self,
        reason: str,
        step: int | None = None,
        failed: dict[str, int] | None = None,
        frames: Frames | None = None,
    ) -> Path | None:
        """Writes a snapshot and its description; a failure is one warning, and only interrupts leave."""
        with _turn.lock:
            if _turn.taken:
                # A signal in the middle of this: a file is being written already.
                return None
            _turn.taken = True
            try:
                return self._written(reason, self.steps if step is None else step, failed, frames)
            except Exception as error:  # noqa: BLE001 - the program that is recorded must go on
                self._could_not(f"no snapshot written to {self.options.folder} ({type(error).__name__}: {error})")
                return None
            finally:
                _turn.taken = False

    def _written(self, reason: str, step: int, failed: dict[str, int] | None, frames: Frames | None) -> Path:
        torch = self._torch
        self._sees_who_records()
        if not history.is_on(torch) and history.can_tell(torch):
            self._note("the program has switched the history off: there is none behind that moment")
        stem = names.stem(reason, names.ranks(torch)["rank"], step if self.steps else None)
        with no_collections():
            snapshot = torch.cuda.memory._snapshot()
            steps_with_stacks = history.steps_with_stacks()
            about.note(snapshot, steps_with_stacks)
            if failed is not None and frames is not None and self._sampling is not None:
                tell_who_asked(snapshot, failed["device"], frames)
            path = new_file(
                self.options.folder, stem, ".pickle", lambda file: pickle.dump(snapshot, file, protocol=_PROTOCOL)
            )
        self.files.append(path)
        try:
            text = about.describe(
                torch,
                snapshot,
                file=path.name,
                reason=reason,
                step=step if self.steps else None,
                options=self.options,
                steps_with_stacks=steps_with_stacks,
                notes=self.notes,
                failed=failed,
            )
            replace_text(about.beside(path), text)
        except Exception as error:  # noqa: BLE001 - the snapshot is there, and that is what matters
            self._could_not(f"{path} has no description beside it ({type(error).__name__}: {error})")
        return path

    def _sees_who_records(self) -> None:
        taken = history.taken_over()
        if taken is not None:
            self._note(taken)

    def _could_not(self, what: str) -> None:
        self.failures += 1
        if self.failures == 1:
            warn(f"{what}; the program goes on")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _not_recording(self, why: str, missing: str) -> Recorder:
        if self.options.strict:
            raise NotAvailableError(f"nothing can be recorded: {why}", missing=missing)
        self.notes.append(f"{_NOTHING}: {why}")
        warn(self.notes[-1])
        return self

    def _open_span(self, torch: Any, number: int) -> None:
        span = torch.autograd.profiler.record_function(f"{STEP}#{number}")
        span.__enter__()
        # Only now: whoever stops the recorder meanwhile closes what is open.
        self._span = span

    def _close_span(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)


def _reserved(torch: Any) -> int:
    """Bytes reserved on the current device, 0 where that cannot be had. Takes some microseconds."""
    try:
        return counter(torch.cuda.memory_stats_as_nested_dict(), "reserved_bytes.all.current")
    except Exception:  # noqa: BLE001 - the program that is recorded must go on
        return 0


def after_fork() -> None:
    """In a forked child: a file that the parent was writing is not the child's."""
    _turn.renew()

"""How a recorder is asked for."""

from __future__ import annotations

import os
from typing import Any

from .options import Context, Options, Stacks, folder_path, signal_number, threshold
from .recorder import Recorder


def record(
    folder: str | os.PathLike[str] = "snapshots",
    *,
    max_entries: int = 200_000,
    context: Context | None = "alloc",
    stacks: Stacks = "auto",
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
        stacks: ``"auto"``: Python stacks in the first three steps and every twentieth, where memory has just grown or
            run out, and in parts named by :meth:`Recorder.phase`; always, where :meth:`Recorder.step` is never called,
            and before PyTorch 2.11, which would forget the steps.
            ``"python"``: at every allocation, which a program that waits for its host feels. ``"all"``: C++ frames
            too, which can make writing a file take minutes.
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
            folder=folder_path(folder),
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

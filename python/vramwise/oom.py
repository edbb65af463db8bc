"""Is this exception an out-of-memory error, and how does the memory really come back after one?

Needs no torch: exceptions are judged by their classes' names and their texts. What counts is a failed allocation,
of the card or of the host, by PyTorch's allocators, by CUDA's and HIP's libraries, by NCCL, XPU or MPS. Errors that
merely often follow from a full card are not counted by their text alone; see :class:`OomWitness`.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from ._say import warn
from ._torch_access import torch_if_loaded

# Forks of PyTorch put their device's name where CUDA stands.
_DEVICES = r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU|GCU|MTIA|SDAA|PrivateUse1|MPS backend)"

# Texts that are an allocation's failure wherever they stand in an error's own words.
_FAILED = re.compile(
    "|".join(
        (
            _DEVICES + r" out of memory\.?\s+(?:\(.*?\)\.?\s+)?Tried to allocate",
            r"MPS backend out of memory",
            r"Invalid buffer size: [\d.]+ [KMGT]i?B",
            r"Allocation on device .{0,8}would exceed allowed memory",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"(?:CUDA|HIP)(?: driver)? error(?: 2)?: out of memory",
            r"cuda runtime err(?:or)? ?\(2\) ?: out of memory",
            r"error=2 : out of memory",
            r"Triton Error \[\w+\]: out of memory",
            r"CUresult error result=2\b",
            r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory",
            r"(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|HIPBLAS|HIPSPARSE|HIPSOLVER)_STATUS_ALLOC_FAILED",
            r"CUDNN_STATUS_INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED",
            r"CUFFT_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed",
            r"(?:cuda|hip) failure (?:\d+ )?'out of memory'",
            r"Failed to (?:CUDA|HIP) [cm]alloc",
            r"(?:UR|ZE)_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|HOST_MEMORY|RESOURCES)",
            r"Native API returns: (?:-5|39)\b",
            # Up to PyTorch 2.5 or so, this assertion could fail while the out-of-memory text was put together.
            r"NVML_SUCCESS == r INTERNAL ASSERT FAILED at .{0,80}CUDACachingAllocator",
            r"std::bad_alloc",
            r"Cannot allocate memory \(12\)",
            r"insufficient shared memory \(shm\)",
            # How a data loader's worker ends that finds /dev/shm full.
            r"killed by signal: Bus error",
            r"RESOURCE_EXHAUSTED: .{0,200}(?:out of memory|allocat)",
            r"OOM when allocating tensor",
            r"Out of memory allocating [\d,]+ bytes",
        )
    ),
    re.IGNORECASE | re.DOTALL,
)

# The same without figures; only where the text begins so, since advice also names the error.
_BARE = re.compile(_DEVICES + r" out of memory\b", re.IGNORECASE)

# More than any address space: a size that was computed wrongly, which no smaller batch makes right.
_ABSURD = re.compile(r"allocate (?:more than 1EB\b|1[67] ?EiB\b|17179869\d{3}(?:\.\d+)? GiB)", re.IGNORECASE)

# Texts that a full card causes, and other things too.
_SUSPECT = re.compile(
    r"unable to find an engine to execute this computation|no valid convolution algorithms"
    r"|CU(?:BLAS|DNN)_STATUS_(?:NOT_INITIALIZED|NOT_SUPPORTED|INTERNAL_ERROR|EXECUTION_FAILED)"
    r"|unhandled (?:cuda|hip) error",
    re.IGNORECASE,
)

_WRAPPED = "Traceback (most recent call last)"
_PREFIXES = re.compile(r"(?:\[rank\d+\]:\s*|[A-Za-z_][\w.]*(?:Error|Exception|Failed)\s*:\s*)*")
_ERROR_LINE = re.compile(r"^(?:\[rank\d+\]:\s*)?[A-Za-z_][\w.]*(?:Error|Exception|Failed)\s*:", re.MULTILINE)

# Built-in exceptions that no allocator raises: a text that names the error is talk.
_NEVER = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    NameError,
    StopIteration,
    StopAsyncIteration,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
)

# Less than this free, and a library that could not start has a reason (a CUDA context's module takes about as much).
_FULL_BYTES = 256 << 20


def is_oom_error(exc: BaseException | None) -> bool:
    """Whether an exception is a failed allocation, or hides one.

    True for ``torch.OutOfMemoryError`` (``torch.cuda.OutOfMemoryError`` before 2.5), ``MemoryError``, and errors whose
    text is an allocation's failure: of the CUDA, HIP, XPU, MPS and CPU allocators, of cuBLAS, cuDNN, cuFFT, cuSPARSE,
    cuSOLVER and their ROCm counterparts, of the driver, of NCCL, of shared memory. Also where such an error is the
    ``__cause__`` or, not suppressed by ``from None``, the ``__context__`` of the exception, stands in the traceback
    that a data loader's worker or a spawned process hands over as text, or is every member of an exception group.

    False for everything else: wrong shapes, ``KeyboardInterrupt``, a Triton kernel that needs more shared memory than
    a multiprocessor has, a request for more than 2^60 bytes (a size computed wrongly), and texts that a full card
    causes as well as other things, such as ``CUBLAS_STATUS_NOT_INITIALIZED``. :class:`OomWitness` judges the latter.

    Args:
        exc: the exception; ``None`` is none.

    >>> is_oom_error(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    True
    >>> is_oom_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x16 and 8x8)"))
    False
    """
    return any(_is_failed_allocation(one) for one in _chain(exc))


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """The exception and what it hides, innermost last; ends at cycles and at what passes through everything."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if not isinstance(exc, Exception) and not _members(exc):
            return
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ if exc.__cause__ is not None or exc.__suppress_context__ else exc.__context__


def _members(exc: BaseException) -> tuple[BaseException, ...]:
    members = getattr(exc, "exceptions", None)
    if isinstance(members, tuple) and all(isinstance(member, BaseException) for member in members):
        return members
    return ()


def _is_failed_allocation(exc: BaseException) -> bool:
    members = _members(exc)
    if members:
        return all(is_oom_error(member) for member in members)
    text = _own_text(exc)
    if _has_oom_class(exc):
        return not _ABSURD.search(text)
    if isinstance(exc, MemoryError):
        return True
    if isinstance(exc, OSError) and exc.errno == errno.ENOMEM:
        return True
    if isinstance(exc, _NEVER) or _ABSURD.search(text):
        return False
    if _FAILED.search(text):
        return True
    text = text.lstrip()
    start = _PREFIXES.match(text)
    return bool(_BARE.match(text, start.end() if start else 0))


def _has_oom_class(exc: BaseException) -> bool:
    """By name, since torch need not be imported for this; forks and Ray make classes of their own."""
    for base in type(exc).__mro__:
        name, home = base.__name__, (base.__module__ or "").split(".")[0]
        if name in ("OutOfMemoryError", "_OutOfMemoryError") and home != "builtins":
            return True
        if name.endswith("(OutOfMemoryError)") or name == "ResourceExhaustedError":
            return True
    return False


def _own_text(exc: BaseException) -> str:
    """The error's own words: where it carries a worker's traceback as text, those behind each traceback.

    A traceback quotes lines of source, which may speak of running out of memory without anything of the kind.
    """
    try:
        head, *tracebacks = str(exc).split(_WRAPPED)
    except Exception:  # noqa: BLE001 (a text that cannot be made is none)
        return ""
    errors = []
    for part in tracebacks:
        lines = [found.start() for found in _ERROR_LINE.finditer(part)]
        if lines:
            errors.append(part[lines[-1] :].strip())
    return "\n".join(errors) if errors else head


class OomWitness:
    """Tells whether an error *during a stretch of work* was for want of memory, including those whose text is open.

    Some errors say nothing certain: cuDNN tries one algorithm after another, each fails to get its workspace, and the
    error says that no engine was found; cuBLAS cannot start on a full card and says that it is not initialised. Made
    before the work, a witness remembers the allocator's count of failures. Such a text counts as out of memory where
    that count has grown since, or where a device that still answers has less than 256 MiB free.

    >>> witness = OomWitness()
    >>> witness.saw_oom(ValueError("shapes differ"))
    False
    """

    def __init__(self) -> None:
        self._before = _allocator_failures()

    def saw_oom(self, exc: BaseException | None) -> bool:
        """Whether an exception is out of memory, by itself or with what was seen.

        Args:
            exc: the exception that the work ended with; ``None`` where it ended well.
        """
        if is_oom_error(exc):
            return True
        open_texts = (one for one in _chain(exc) if isinstance(one, RuntimeError) and not _members(one))
        if not any(_SUSPECT.search(_own_text(one)) for one in open_texts):
            return False
        return _allocator_failures() > self._before or _a_device_is_full()


def _each_cuda_device() -> Iterator[tuple[Any, int]]:
    torch = torch_if_loaded()
    cuda = getattr(torch, "cuda", None)
    with contextlib.suppress(Exception):
        if cuda is not None and cuda.is_initialized():
            for device in range(cuda.device_count()):
                yield cuda, device


def _allocator_failures() -> int:
    """``num_ooms`` of all devices: requests that the caching allocator could not serve, caught or not."""
    failures = 0
    for cuda, device in _each_cuda_device():
        with contextlib.suppress(Exception):
            # Asked at every step, so without flattening all counters into one dictionary.
            stats = getattr(cuda, "memory_stats_as_nested_dict", cuda.memory_stats)
            failures += int(stats(device).get("num_ooms", 0))
    return failures


def _a_device_is_full() -> bool:
    for cuda, device in _each_cuda_device():
        # An error that has broken the context, such as a failed assertion in a kernel, answers here again.
        with contextlib.suppress(Exception):
            if cuda.memory_reserved(device) > 0 and cuda.mem_get_info(device)[0] < _FULL_BYTES:
                return True
    return False


def release_frames(exc: BaseException | None) -> None:
    """Drops the local variables of all functions that an exception went through, and of those it hides.

    As long as an exception is referred to, its traceback keeps every frame, and each frame its tensors. Afterwards the
    traceback still names files and lines; variables are gone from it. Functions that still run keep theirs: whoever
    catches the exception must not hold tensors of the failed attempt himself.

    Args:
        exc: the exception; ``None`` is none.
    """
    pending: list[BaseException | None] = [exc]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if one.__traceback__ is not None:
            traceback.clear_frames(one.__traceback__)
        pending += [one.__cause__, one.__context__, *_members(one)]


def free_after_oom(exc: BaseException | None = None, *, empty_cache: bool = True) -> int:
    """Gives back what a failed attempt held: frames, cycles, and then, once, the allocator's cache.

    Call it where the exception was caught, after your own references are gone. In an interactive session the last
    uncaught out-of-memory error (``sys.last_value``) is released too: it pins its cell's tensors otherwise.

    Args:
        exc: the exception that was caught; ``None`` if it is gone already.
        empty_cache: also give cached segments back to the driver, which makes the next attempt start without the
            fragmentation of this one.

    Returns:
        By how many bytes all CUDA devices' reserved memory shrank; 0 without CUDA.
    """
    release_frames(exc)
    last = getattr(sys, "last_value", None)
    if isinstance(last, BaseException) and is_oom_error(last):
        release_frames(last)
    gc.collect()
    before = _reserved_bytes()
    if empty_cache:
        torch = torch_if_loaded()
        # Also the casts of weights that autocast keeps: they hold parts of the failed attempt's graph.
        for clear in (getattr(torch, "clear_autocast_cache", None), *_empty_caches(torch)):
            if clear is not None:
                with contextlib.suppress(Exception):
                    clear()
    return max(0, before - _reserved_bytes())


def _empty_caches(torch: Any) -> Iterator[Any]:
    """``empty_cache`` of every kind of device that this torch has started."""
    for kind in ("cuda", "xpu", "npu", "mps"):
        home = getattr(torch, kind, None)
        if home is None:
            continue
        started = getattr(home, "is_initialized", None)
        with contextlib.suppress(Exception):
            if started() if started is not None else home.is_available():
                yield getattr(home, "empty_cache", None)


def _reserved_bytes() -> int:
    reserved = 0
    for cuda, device in _each_cuda_device():
        with contextlib.suppress(Exception):
            reserved += int(cuda.memory_reserved(device))
    return reserved


def add_note(exc: BaseException, note: str) -> None:
    """``exc.add_note``; on Python 3.10, whose tracebacks show no notes, also a warning.

    Args:
        exc: the exception.
        note: what is added to it.
    """
    if hasattr(exc, "add_note"):
        exc.add_note(note)
    else:
        notes = getattr(exc, "__notes__", None)
        exc.__notes__ = [*notes, note] if isinstance(notes, list) else [note]  # type: ignore[attr-defined]
        warn(note)

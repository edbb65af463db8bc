"""Allocator settings changed while the program runs, checked first, and undone where PyTorch refuses them.

Not here: which settings are best (``vramwise tune``), nor those of vramwise's allocator (``vramwise.set_settings``).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._say import warn
from .._state import state, without_history
from .._torch_access import need_torch, why_no_cuda
from ..errors import NotAvailableError, SettingsError
from . import strings

#: What is ``missing`` where vramwise's allocator is in use.
OTHER_ALLOCATOR = "PyTorch's own allocator"

_lock = threading.Lock()
# What was set through this module, the newest last, for releases that tell no more than the environment does.
_set: list[str] = []
_sticky: dict[str, str] = {}
# Codes of remarks: those on what another release would make of a string ...
_OF_OTHER_RELEASES = frozenset({"needs-version", "roundup-arrow", "wrong-separator"})
# ... and those on options without effect where the process may take the whole card.
_WITHOUT_LIMIT = frozenset({"gc-needs-fraction", "throw-needs-fraction"})


def set_allocator_settings(conf: str | Mapping[str, object]) -> str:
    """Changes the settings of PyTorch's allocator in this process, for all its devices.

    All or nothing: where PyTorch refuses the string, the settings before are put back, since its parser leaves some of
    them reset. What each option does to a program that is under way:

    * ``max_split_size_mb``, ``max_non_split_rounding_mb``, ``garbage_collection_threshold``,
      ``roundup_power2_divisions``: in force from the next request on, also for blocks that are cached already. A string
      that does not mention one of them sets it back to its default.
    * ``expandable_segments``: for new memory. Segments of the other kind stay; ordinary ones are used further,
      expandable ones are passed over while the option is off, until ``torch.cuda.empty_cache()`` gives them back.
    * ``large_segment_size_mb``: for new segments. It stays where a later string does not mention it, and
      raises the least value that ``max_split_size_mb`` may have.
    * ``release_lock_on_cudamalloc``, ``graph_capture_record_stream_reuse``: from the next request on; they stay
      likewise.
    * ``backend``, ``per_process_memory_fraction``, ``pinned_reserve_segment_size_mb``,
      ``pinned_use_background_threads``: only before the first CUDA tensor.

    Args:
        conf: settings as in ``PYTORCH_CUDA_ALLOC_CONF``, or the same as a mapping; ``""`` sets the first four back.

    Returns:
        The string that was in force before, to be set again later.

    Raises:
        TypeError: the settings are neither text nor a mapping.
        SettingsError: the string is refused, by the check or by PyTorch; nothing has changed.
        NotAvailableError: torch is not installed, is built without CUDA, or has no function for this; or
            vramwise's own allocator is in use, which has ``vramwise.set_settings``.
    """
    if not isinstance(conf, (str, Mapping)):
        raise TypeError(f"settings are a text such as 'max_split_size_mb:128', or a mapping, not {conf!r}")
    text = conf if isinstance(conf, str) else strings.text_of(conf)
    torch = need_torch("vramwise.set_allocator_settings()")
    apply, backend = _function(torch), _backend(torch)
    wanted = strings.options(text)
    if torch.cuda.is_initialized():
        _refuse_fixed(backend, wanted, text)
    for problem in _problems(text, str(torch.__version__)):
        if _concerns(torch, problem):
            warn(f"allocator settings {text!r}: {problem.message}")
    with _lock:
        before = allocator_settings(torch)
        try:
            apply(text)
        except (RuntimeError, ValueError) as error:
            with contextlib.suppress(RuntimeError, ValueError):
                apply(before)
            first = (str(error).splitlines() or [""])[0]
            raise SettingsError(f"PyTorch refuses {text!r}: {first}", settings=text) from None
        _set[:] = [text]
        _sticky.update({name: value for name, value in wanted.items() if name not in strings.RESET_BY_EACH_PARSE})
    return before


def allocator_settings(torch: Any = None) -> str:
    """The settings string in force: the last one that was set, or the environment's.

    Before PyTorch 2.11 it is what was set through vramwise, since asking PyTorch would copy its memory history.

    Args:
        torch: the module, where the caller has it.
    """
    if torch is None:
        torch = need_torch("vramwise.settings.allocator_settings()")
    if without_history(torch) and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            return str(state(torch)[1].get("PYTORCH_CUDA_ALLOC_CONF") or "")
    return _set[-1] if _set else strings.from_environment()


def in_force(option: str, current: str) -> str | None:
    """The value of an option that outlives later strings; ``None`` where nothing has set it.

    Args:
        option: its name.
        current: the string in force.
    """
    with contextlib.suppress(SettingsError):
        now = strings.options(current)
        if option in now:
            return now[option]
        if option not in _sticky:
            return strings.options(strings.from_environment()).get(option)
    return _sticky.get(option)


def outliving(names: Iterable[str], current: str) -> dict[str, str]:
    """The values in force of options that outlive later strings, those that can be had.

    Args:
        names: the options.
        current: the string in force.
    """
    told: dict[str, Any] = {}
    # A process that has not loaded torch has told it nothing either.
    torch = sys.modules.get("torch")
    if torch is not None and without_history(torch) and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            told = state(torch)[1]
    values = {name: str(told[name]) if name in told else in_force(name, current) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def check_allocator_settings(text: str, torch_version: str | None = None) -> list[str]:
    """What is to be said about a settings string, without setting it. Needs neither torch nor a device.

    Args:
        text: as in ``PYTORCH_CUDA_ALLOC_CONF``.
        torch_version: the release whose rules count, such as ``"2.8"``; ``None`` = the newest known.

    Returns:
        Remarks on a string that is accepted, such as on an option without effect; mostly none.

    Raises:
        SettingsError: that release would refuse the string, or abort because of it.
    """
    return [f"allocator settings {text!r}: {problem.message}" for problem in _problems(text, torch_version)]


def _problems(text: str, torch_version: str | None) -> list[Any]:
    """What the native part has to say of a string that is accepted."""
    # Forms that end the process where PyTorch reads them are found without the native part too.
    strings.options(text)
    check = _native_check()
    problems = [] if check is None else check(text, None if torch_version is None else torch_version.split("+")[0])
    for problem in problems:
        if problem.code == "refused":
            raise SettingsError(problem.message, settings=text, position=problem.position)
    return problems


def _concerns(torch: Any, problem: Any) -> bool:
    """Whether a remark matters to a process that runs: it has its release, and may have a limit already."""
    if problem.code in _OF_OTHER_RELEASES:
        return False
    if problem.code in _WITHOUT_LIMIT and torch.cuda.is_initialized():
        with contextlib.suppress(AttributeError, RuntimeError):
            return float(torch.cuda.get_per_process_memory_fraction()) >= 1.0
    return True


def _native_check() -> Callable[[str, str | None], list[Any]] | None:
    try:
        from .. import _native
    except ImportError:
        return None
    check: Callable[[str, str | None], list[Any]] | None = getattr(_native, "check_settings", None)
    return check


def _function(torch: Any) -> Callable[[str], object]:
    """PyTorch's own function: its name has changed, and the old name warns where it is still there."""
    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        found: Callable[[str], object] | None = getattr(torch._C, name, None)
        if found is not None:
            return found
    why = why_no_cuda(torch) or f"this PyTorch ({torch.__version__}) has no function for it"
    raise NotAvailableError(
        f"allocator settings cannot be changed: {why}; set PYTORCH_CUDA_ALLOC_CONF before the program starts",
        missing="settings function",
    )


def _backend(torch: Any) -> str:
    """The name of the allocator in use, which must be one that PyTorch's settings are for."""
    try:
        backend = str(torch.cuda.get_allocator_backend())
    except AttributeError:
        raise NotAvailableError(
            f"this PyTorch ({torch.__version__}) is built without CUDA, and has no allocator to set up", missing="cuda"
        ) from None
    if backend == "vramwise":
        raise NotAvailableError(
            "vramwise's own allocator is in use, which PyTorch's settings do not reach; call vramwise.set_settings()",
            missing=OTHER_ALLOCATOR,
        )
    return backend


def _refuse_fixed(backend: str, wanted: Mapping[str, str], text: str) -> None:
    for name, why in strings.FIXED_AT_START.items():
        same = name == "backend" and wanted.get(name) == backend
        if name in wanted and not same:
            raise SettingsError(
                f"{name} cannot be changed now: {why}; leave it out", settings=text, position=max(0, text.find(name))
            )

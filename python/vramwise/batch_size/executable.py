"""A function that runs again with a smaller batch size: what :func:`find_executable_batch_size` makes of it."""

from __future__ import annotations

import functools
import inspect
import logging
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from .._numbers import whole_number
from .._ranks import FAILED, FINE, OUT_OF_MEMORY, Ranks
from ..errors import OtherRankError
from ..oom import OomWitness, free_after_oom, release_frames
from .deferred import name_of, refuse_coroutine
from .predict import Prediction, forced_batch_size, predicted_batch_size
from .results import KeptResults, surroundings
from .search import batch_size as as_batch_size
from .search import no_batch_fits

_log = logging.getLogger("vramwise.batch_size")

# What a class may have in the place of a function, and is called only through the class.
WRAPPERS = (classmethod, staticmethod)


@dataclass(frozen=True)
class Rules:
    """The arguments of the decorator."""

    starting: int
    smallest: int
    reduce: Callable[[int], int]
    cache_key: str | None
    prediction: Prediction | None
    group: Any


@dataclass
class _Size:
    """The size that is tried next, and whether anything was tried."""

    now: int
    started: bool = False


class Executable:
    """A function without its batch size. In a class it is a method, and each object has a size of its own."""

    def __init__(self, function: Any, rules: Rules, size: _Size | None = None) -> None:
        # What tools read (``__name__``, ``__doc__``, the signature) is the function's.
        functools.update_wrapper(self, function)
        self._function, self._rules = function, rules
        self._size = size or _Size(rules.starting)

    @property
    def batch_size(self) -> int:
        """The size that the next call begins with."""
        return self._size.now

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self._size.now = as_batch_size(size, "batch_size")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if isinstance(self._function, WRAPPERS):
            return Executable(self._function.__get__(instance, owner), self._rules, self._size)
        if instance is None:
            return self
        return Executable(types.MethodType(self._function, instance), self._rules, self._size_of(instance))

    def _size_of(self, instance: Any) -> _Size:
        """That of an object, which may hold another model than the next one; the class's where it takes none."""
        own = getattr(instance, "__dict__", None)
        if not isinstance(own, dict):
            return self._size
        return cast("_Size", own.setdefault(f"_vramwise_size_of_{name_of(self)}", _Size(self._size.now)))

    def __reduce__(self) -> str:
        # Found again by its name, as a function is.
        return str(getattr(self, "__qualname__", self))

    def __repr__(self) -> str:
        return f"<{name_of(self)} with batch size {self.batch_size}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, with smaller sizes until it fits, and gives what it gives."""
        function, rules, size = self._function, self._rules, self._size
        if isinstance(function, staticmethod):
            function = function.__func__
        _refuse_own_batch_size(function, args, kwargs)
        ranks = Ranks(rules.group)
        forced = forced_batch_size()
        kept, key = KeptResults(), _key(rules.cache_key, rules.starting, ranks)
        if not size.started and forced is None:
            known = ranks.least([(kept.get(key) if rules.cache_key is not None else None) or 0])[0]
            first = known or _predicted(rules.prediction, ranks, rules.smallest, rules.starting)
            size.now = min(size.now, first or size.now)
            size.started = True
        trying, tried = forced or size.now, []
        while True:
            fits, result, error = _attempt(function, trying, args, kwargs, ranks)
            if fits:
                break
            tried.append(trying)
            smaller = 0 if forced else rules.reduce(trying)
            if smaller >= trying:
                raise ValueError(f"reduce_batch_size_fn made {smaller} of {trying}: the next size must be smaller")
            if smaller < rules.smallest:
                free_after_oom()
                raise no_batch_fits(tried, rules.smallest, 0) from error
            _log.warning("batch size %d ran out of memory; trying %d", trying, smaller)
            size.now = trying = smaller
            error = None
        if rules.cache_key is not None and ranks.first() and forced is None:
            kept.put(key, trying)
        return result


def _attempt(
    function: Callable[..., Any], size: int, args: tuple[Any, ...], kwargs: dict[str, Any], ranks: Ranks
) -> tuple[bool, Any, Exception | None]:
    """One call, and what all ranks make of it: whether it fits, the result, the error.

    Raises:
        Exception: whatever the function raised that is not out of memory, when the other ranks know.
    """
    free_after_oom()
    witness = OomWitness()
    result: Any = None
    failure: Exception | None = None
    own = FINE
    try:
        result = function(size, *args, **kwargs)
        refuse_coroutine(result, function, "find_executable_batch_size")
    except Exception as error:
        if not witness.saw_oom(error):
            ranks.least([FAILED])
            raise
        own, failure = OUT_OF_MEMORY, error
    # The rest of the clearing up comes with the next attempt, or with giving up.
    release_frames(failure)
    worst = ranks.least([own])[0]
    if worst == FAILED:
        raise OtherRankError(f"another rank failed with batch size {size}; its log says why")
    if worst == FINE:
        return True, result, None
    del result
    return False, None, failure


def _refuse_own_batch_size(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tells apart a caller who gives the batch size too, which would otherwise be an odd message about arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    if not parameters:
        raise TypeError(f"{name_of(function)} takes no parameter: its first must be the batch size")
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    catches_all = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if (not catches_all and len(args) + 1 > len(positional)) or parameters[0].name in kwargs:
        shown = ", ".join([*map(repr, args[1:]), *(f"{name}={value!r}" for name, value in kwargs.items())])
        raise TypeError(
            f"{name_of(function)} gets its first argument, the batch size, from find_executable_batch_size: "
            f"call it without, as in {name_of(function).removesuffix('()')}({shown})"
        )


_GIVEN = "what reduce_batch_size_fn gives"


def reducer(reduce: Callable[..., int] | None) -> Callable[[int], int]:
    """What gives the next size, called with the present one.

    Raises:
        TypeError: it is no function.
    """
    if reduce is None:
        return lambda size: int(size * 0.9)
    if not callable(reduce):
        raise TypeError(f"reduce_batch_size_fn is a function that gives the next size, not {reduce!r}")
    try:
        inspect.signature(reduce).bind(0)
    except TypeError:
        return lambda size: whole_number(reduce(), _GIVEN)
    except ValueError:
        pass
    return lambda size: whole_number(reduce(size), _GIVEN)


def _key(cache_key: str | None, starting: int, ranks: Ranks) -> dict[str, Any]:
    return {"user": cache_key, "starting_batch_size": starting, "ranks": ranks.size, **surroundings()}


def _predicted(prediction: Prediction | None, ranks: Ranks, lowest: int, highest: int) -> int | None:
    """The first rank's prediction, for all."""
    if prediction is None or lowest > highest:
        return None
    said = 1 << 62
    if ranks.first():
        said = predicted_batch_size(prediction, lowest=lowest, highest=highest, world_size=ranks.size) or 0
    return ranks.least([said])[0] or None

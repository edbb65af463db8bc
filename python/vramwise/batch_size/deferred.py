"""Functions whose body does not run when they are called: a search would take every size to fit."""

from __future__ import annotations

import functools
import inspect
from typing import Any

_KINDS = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def refuse_deferred(function: Any, caller: str) -> None:
    """Refuses generators and async functions, also behind a partial, a method or a ``__call__``.

    Args:
        function: what is to be called with a batch size.
        caller: who calls it, for the message.

    Raises:
        TypeError: it is one.
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    for one in (inner, getattr(type(inner), "__call__", None)):  # noqa: B004 - which one, not whether
        for is_kind, what in _KINDS:
            if is_kind(one):
                raise TypeError(
                    f"{name_of(function)} is {what}: calling it runs nothing yet, so that every batch size would "
                    f"seem to fit. Give {caller} a plain function that does the work before it returns"
                )


def refuse_coroutine(result: Any, function: Any, caller: str) -> None:
    """The same for a plain function that gives a coroutine, which is closed.

    Raises:
        TypeError: it does.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            f"{name_of(function)} gave a coroutine, which has not run yet: give {caller} a plain function that does "
            "the work before it returns"
        )


def name_of(function: Any) -> str:
    """What messages call a function."""
    found = getattr(function, "__name__", None)
    return f"{found}()" if isinstance(found, str) else "the function"

"""Whole numbers that a caller gives: Python's, NumPy's, whatever counts as one."""

from __future__ import annotations

import operator
from typing import Any


def whole_number(value: Any, name: str, least: int | None = None) -> int:
    """A whole number, as Python's own ``int``.

    >>> whole_number(3, "every", least=1)
    3

    Args:
        value: what was given.
        name: what errors call it.
        least: the smallest that means something.

    Raises:
        TypeError: it is no whole number; ``True`` is none, nor is ``8.0``.
        ValueError: it is less than ``least``.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} is {number}, but must be at least {least}")
    return number
